"""CUDA kernels compiled without a GPU, and run on the CPU with loops in place of threads."""

from __future__ import annotations

import shutil
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import tirx
from tvm.s_tir import SBlock, Schedule

from hbtvm.compiler.build import compile_module
from hbtvm.compiler.target import resolve
from hbtvm.pipeline.ensemble import TreeEnsemble
from hbtvm.strategies import Forest, Strategy, Workload
from schedules.space import Config

GPU = resolve({"kind": "cuda", "arch": "sm_90"})
CPU = resolve("cpu")
NO_NVCC = None if shutil.which("nvcc") else "there is no nvcc on this machine"


def serial(module: Any) -> Any:
    """A scheduled module with loops in place of blocks and threads, and plain memory of one scope.

    Before TVM lowers it, each of a schedule's nests stands for itself: a nest that fills shared
    memory ends before the one that reads it begins, as barriers will see to on a GPU. So a nest
    may run through its threads one after the other.
    """
    sch = Schedule(module)
    main = sch.get(sch.get_sblock("root"))
    names = {str(buffer.name) for buffer in main.alloc_buffers}
    found: list[Any] = []
    tvm_ffi.structural_walk(module["main"].body, (SBlock, lambda block: found.append(block)))
    for block in found:
        for region in block.writes:
            if str(region.source.name) in names:
                names.discard(str(region.source.name))
                sch.set_scope(sch.get_sblock(block.name_hint), 0, "global")

    def unbound(loop: Any) -> Any:
        if loop.kind != tirx.ForKind.THREAD_BINDING:
            return loop
        return tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.SERIAL, loop.body)

    function = sch.mod["main"]
    return tvm.IRModule(
        {"main": function.with_body(tvm_ffi.structural_map(function.body, (tirx.For, unbound)))}
    )


def serial_scores(
    strategy: Strategy,
    workload: Workload,
    ensemble: TreeEnsemble,
    forest: Forest,
    config: Config,
    X: np.ndarray,
) -> np.ndarray:
    """Raw scores, float64 (n, O), of a CUDA kernel run so."""
    compiled = compile_module(serial(strategy.module(workload, config)), CPU)
    row_tile, groups = int(config["row_tile"]), len(forest.group_trees)
    tiles, width = -(-len(X) // row_tile), forest.value.shape[1]
    rows = np.zeros((tiles * row_tile, X.shape[1]), X.dtype)
    rows[: len(X)] = X
    threads = int(config["row_threads"])
    scores = np.full((tiles, groups, width, row_tile // threads, threads), np.nan)
    tables = [*strategy.shared(forest).values(), *strategy.tables(forest, config).values()]
    arrays = [tvm.runtime.tensor(a) for a in (rows.reshape(tiles, row_tile, -1), *tables, scores)]
    compiled["main"](*arrays)
    sums = arrays[-1].numpy().reshape(tiles, groups * width, row_tile).transpose(0, 2, 1)
    return sums.reshape(tiles * row_tile, -1)[: len(X)] / ensemble.divisor + ensemble.base_score
