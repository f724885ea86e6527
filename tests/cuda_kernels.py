"""CUDA kernels compiled without a GPU, and run on the CPU with loops in place of threads."""

from __future__ import annotations

import ctypes
import functools
import re
import shutil
import subprocess
import tempfile
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import tirx
from tvm.s_tir import SBlock, Schedule

from hbtvm.compiler.building.cuda import source_and_launch
from hbtvm.compiler.building.cuda_source import helpers
from hbtvm.compiler.lowering.rewrites import rewrite_loops
from hbtvm.compiler.targets.target import resolve
from hbtvm.graph.ensemble import TreeEnsemble
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import Workload
from hbtvm.strategies import Forest, Strategy
from hbtvm.strategies.recursive.cuda_levels import BARRIER

GPU = resolve({"kind": "cuda", "arch": "sm_90"})
_OPTIONS = ("-std=c++17", "-O1", "-w", "-fPIC")
CPU = resolve("cpu")
NO_NVCC = None if shutil.which("nvcc") else "there is no nvcc on this machine"


def serial(module: Any) -> Any:
    """Return a scheduled module with loops in place of blocks and threads, and memory of one scope.

    Before TVM lowers a schedule, its loop nests are separate: a nest that fills shared
    memory ends before the one that reads it begins, which barriers ensure on a GPU. So a nest
    may run its threads one after the other.
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


def scores_of(
    run: Callable[[list[np.ndarray]], None],
    strategy: Strategy,
    ensemble: TreeEnsemble,
    forest: Forest,
    config: Config,
    X: np.ndarray,
) -> np.ndarray:
    """Return raw scores, float64 (n, O), of a kernel that `run` calls on its arrays, the scores last."""
    row_tile, groups = int(config["row_tile"]), len(forest.group_trees)
    tiles, width = -(-len(X) // row_tile), forest.value.shape[1]
    rows = np.zeros((tiles * row_tile, X.shape[1]), X.dtype)
    rows[: len(X)] = X
    threads, parts = int(config["row_threads"]), int(config["tree_blocks"])
    scores = np.full((tiles, parts * groups, width, row_tile // threads, threads), np.nan)
    tables = [*strategy.shared(forest).values(), *strategy.tables(forest, config).values()]
    run([rows.reshape(tiles, row_tile, -1), *tables, scores])
    sums = scores.reshape(tiles, parts, groups * width, row_tile).sum(axis=1).transpose(0, 2, 1)
    return sums.reshape(tiles * row_tile, -1)[: len(X)] / ensemble.divisor + ensemble.base_score


def serial_scores(
    strategy: Strategy,
    workload: Workload,
    ensemble: TreeEnsemble,
    forest: Forest,
    config: Config,
    X: np.ndarray,
) -> np.ndarray:
    """Return raw scores, float64 (n, O), of a CUDA kernel with loops in place of threads."""
    module = strategy.module(workload, config)
    return scores_of(lambda arrays: serial_run(module, arrays), strategy, ensemble, forest, config, X)


def emulated_scores(
    strategy: Strategy,
    workload: Workload,
    ensemble: TreeEnsemble,
    forest: Forest,
    config: Config,
    X: np.ndarray,
) -> np.ndarray:
    """Return raw scores, float64 (n, O), of a kernel's unchanged CUDA source (see `emulated_run`)."""
    module = strategy.module(workload, config)
    return scores_of(lambda arrays: emulated_run(module, arrays), strategy, ensemble, forest, config, X)


def serial_run(module: Any, arrays: list[np.ndarray]) -> None:
    """Call a kernel, with loops in place of threads, on its arrays, the scores last."""
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    # Hardly optimized, for a single call; but half precision is slow without the features of the CPU.
    features = [f"+{name}" for name in CPU["features"]]
    target = tvm.target.Target({"kind": "llvm", "mcpu": CPU["mcpu"], "mattr": features, "opt-level": 1})
    with target:
        tvm.compile(rewrite_loops(serial(module)), target=target)["main"](*tensors)
    arrays[-1][:] = tensors[-1].numpy()


def emulated_run(module: Any, arrays: list[np.ndarray]) -> None:
    """Call a kernel's unchanged CUDA source, barriers and warps included, on its arrays, the scores last.

    The source is compiled for the CPU with `cuda_emulation.h` in place of CUDA's headers.
    """
    source, launch = source_and_launch(module, GPU)
    signature = source[source.rindex(f"{launch.function}(") :].partition("(")[2].partition(")")[0]
    types = [one.rpartition(" ")[0].replace("__restrict__", "") for one in signature.split(",")]
    shapes = [array.shape for array in arrays]
    given = launch.values([array.ctypes.data for array in arrays], shapes)
    calls = [f"({kind}){value.value}" for kind, value in zip(types, given, strict=True)]
    (x, y, _), (wide, high, _) = launch.blocks(shapes), launch.block
    text = (
        kernel_text(source)
        + f"static void one() {{ {launch.function}({', '.join(calls)}); }}\n"
        + 'extern "C" void launch(bool backwards) {\n'
        + f"for (blockIdx.y = 0; blockIdx.y < {y}; ++blockIdx.y)\n"
        + f"for (blockIdx.x = 0; blockIdx.x < {x}; ++blockIdx.x)\n"
        + f"emulation::block({wide}, {high}, backwards, one); }}\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        emulated = ctypes.CDLL(compiled(text, str(Path(folder, "kernel.so")))).launch
        emulated(False)
        forwards = arrays[-1].copy()
        emulated(True)
        np.testing.assert_array_equal(arrays[-1], forwards)


def compiled(text: str, path: str, *options: str) -> str:
    """Compile C++ that may include ``cuda_emulation.h`` to a shared library; return its path."""
    command = ["g++", *_OPTIONS, "-shared", "-I", _headers(), "-x", "c++", "-", "-o", path, *options]
    done = subprocess.run(command, input=text, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr[:2000]
    return path


@functools.cache
def _headers() -> str:
    """Return the folder of the emulation's header, precompiled for the same options, which saves half."""
    folder = tempfile.TemporaryDirectory(prefix="hbtvm-tests-")
    weakref.finalize(_headers, folder.cleanup)
    header = str(Path(folder.name, "cuda_emulation.h"))
    shutil.copy(Path(__file__).with_name("cuda_emulation.h"), header)
    subprocess.run(["g++", *_OPTIONS, "-x", "c++-header", header, "-o", f"{header}.gch"], check=True)
    return folder.name


def kernel_text(source: str) -> str:
    """Return the source of a kernel and its helpers, without TVM's prologue of every kernel."""
    helper = re.search(rf"__forceinline__ __device__ void (multiply_|{BARRIER})", source)
    text = source[helper.start() if helper else source.index('extern "C" __global__') :]
    if f"{BARRIER}(" in text:  # blocks run together, so each has its own
        shared = r"__shared__ alignas\(64\) (\w+) (\w+)\[(\d+)\];"
        own = r"alignas(64) static \1 all_\2[emulation::MOST_BLOCKS][\3]; \1* \2 = all_\2[emulation::slot];"
        text = re.sub(shared, own, text)
        dynamic = r"extern __shared__ \S+ ([\w ]+) (\w+)\[\];"
        text = re.sub(dynamic, r"\1* \2 = (\1*)emulation::dynamic_of_blocks[emulation::slot];", text)
    text = text.replace("__shared__ alignas(64)", "alignas(64) __shared__")
    text = re.sub(r"extern __shared__ \S+ ([\w ]+) (\w+)\[\];", r"\1* \2 = (\1*)dynamic_shared;", text)
    return f'#include "cuda_emulation.h"\n{helpers(text)}{text}'


def usage(printed: str) -> dict[str, int]:
    """Return what ``ptxas -v`` reports of a kernel: registers, and bytes of spills, stack, shared memory."""
    patterns = {
        "registers": r"Used (\d+) registers",
        "stack": r"(\d+) bytes stack frame",
        "spills": r"(\d+) bytes spill stores",
        "shared": r"(\d+) bytes smem",
    }
    found = {name: re.search(pattern, printed) for name, pattern in patterns.items()}
    return {name: int(match.group(1)) if match else 0 for name, match in found.items()}
