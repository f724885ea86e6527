"""What the cost model is told of CUDA kernels, held against the scheduled programs themselves."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tvm import tirx

from hbtvm.schedules.cuda_shape import persistent_blocks
from hbtvm.schedules.loops import Loop
from hbtvm.schedules.space import Config, columns
from hbtvm.strategies import make_forest, strategies_on, workload_of
from tests.cost_model.test_lowered import at
from tests.cuda_kernels import GPU
from tests.ensembles import random_ensemble

CUDA = strategies_on(GPU)


def nests(node: Any, loops: dict[str, int], sizes: dict[str, int]) -> Iterator[tuple[str, dict[str, int]]]:
    """Name and loops of each block of a scheduled program; vectors, which are one load each, left out."""
    kind = type(node).__name__
    if kind == "For":
        # What is bound to a thread already runs no more often where it is bound again.
        bound = node.thread_binding
        key = str(len(loops)) if bound is None else str(bound.thread_tag)
        extent = sizes.get(str(node.extent)) or int(node.extent)
        own = {} if node.kind == tirx.ForKind.VECTORIZED else {key: extent}
        yield from nests(node.body, {**loops, **own}, sizes)
    elif kind == "SeqStmt":
        for part in node.seq:
            yield from nests(part, loops, sizes)
    elif kind == "SBlockRealize":
        if str(node.block.name_hint) == "root":
            yield from nests(node.block.body, loops, sizes)
        else:
            yield str(node.block.name_hint), loops


def runs(name: str, config: Config, rows: int, workload: dict[str, Any]) -> dict[str, tuple[int, int]]:
    """Threads of a block, and runs of a thread times blocks, of each block of a program, by its name."""
    trees = -(-workload["trees"] // int(config["tree_blocks"]))
    sizes = {
        "tiles": -(-rows // int(config["row_tile"])),
        "tree_tiles": -(-trees // int(config["tree_tile"])),
    }
    found = {}
    for block, loops in nests(CUDA[name].module(workload, config)["main"].body, {}, sizes):
        threads = math.prod(extent for own, extent in loops.items() if own.startswith("threadIdx"))
        found[block.removesuffix("_update").replace("_shared_local", "_local")] = (
            threads,
            math.prod(loops.values()) // threads,
        )
    return found


STAGES = {
    "bitvector": ("columns", None, "column_local", "bits", "parts", "scores"),
    "perfect_tree_traversal": ("columns", "node_shared", "walk", "parts", "scores"),
    "tree_traversal": ("columns", "walk", "parts", "scores"),
    "gemm": ("columns", None, "tests", None, "leaf", "parts", "scores"),
}
"""The program's block of each statement; None where several blocks or one instruction are told as one."""


@pytest.mark.parametrize("rows", [64, 2**17])
@pytest.mark.parametrize("name", CUDA)
def test_statements_run_as_often_as_the_programs_blocks(name: str, rows: int) -> None:
    # Powers of two, so that nothing is rounded up.
    ensemble = random_ensemble(np.random.default_rng(0), trees=64, groups=2, max_leaves=9)
    workload = workload_of(make_forest(ensemble, "float32", "float32"), rows)
    configs = CUDA[name].space(workload, GPU).sample(np.random.default_rng(1), 12)
    nest = CUDA[name].loops(workload, columns(configs))
    for row, config in enumerate(configs):
        real = runs(name, config, rows, workload)
        for block, statement in zip(STAGES[name], nest, strict=True):
            if block is None or block not in real:
                # What a configuration does not have is told as a single run.
                assert block is None or block in ("columns", "node_shared"), block
                continue
            loops = [Loop(at(loop.extent, row), at(loop.kind, row)) for loop in statement.loops]
            threads = math.prod(int(loop.extent) for loop in loops[-2:])
            count = math.prod(int(loop.extent) for loop in loops[:-2])
            if config["tables"] == "kept" and block == "node_shared":
                # Before it is lowered, a program does not say how many blocks are persistent.
                count //= persistent_blocks(workload, config["persistent"], config["resident"])
            assert (threads, count) == real[block], (config, block)
