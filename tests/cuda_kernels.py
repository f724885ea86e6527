"""CUDA kernels compiled without a GPU, and run on the CPU with loops in place of threads."""

from __future__ import annotations

import ctypes
import functools
import math
import mmap
import re
import shutil
import subprocess
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tvm
import tvm_ffi
from tvm import tirx
from tvm.s_tir import SBlock, Schedule

from hbtvm.compiler.building.cuda import source_and_launch
from hbtvm.compiler.building.cuda_source import helpers
from hbtvm.compiler.building.cuda_toolkit import find
from hbtvm.compiler.lowering.rewrites import rewrite_loops
from hbtvm.compiler.targets.target import resolve
from hbtvm.graph.trees.ensemble import TreeEnsemble
from hbtvm.runtime.gpu.launch import Scaling
from hbtvm.runtime.native.objects.cache import KERNELS, kept
from hbtvm.runtime.package.signature import Signature
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import Workload
from hbtvm.strategies import Forest, Strategy
from hbtvm.strategies.recursive.cuda.levels import BARRIER
from tests.kernels import UNCHECKED

GPU = resolve({"kind": "cuda", "arch": "sm_90"})
_HEADER = Path(__file__).with_name("cuda_emulation.h")
KERNEL = (
    r"__global__ void (?:__launch_bounds__\((?P<threads>\d+)[^)]*\)\s*)?"
    r"(?P<name>\w+)\(\s*(?P<signature>[^{;]*?)\)\s*\{"
)
"""A kernel's definition: its most threads, name and arguments."""

# Local memory begins with a pattern, not with zeros.
_OPTIONS = ("-std=c++17", "-O1", "-w", "-fPIC", "-ftrivial-auto-var-init=pattern")
CPU = resolve("cpu")
NO_NVCC = None if find("nvcc") else "there is no nvcc on this machine"


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


def serial_scores(
    strategy: Strategy,
    workload: Workload,
    ensemble: TreeEnsemble,
    forest: Forest,
    config: Config,
    X: np.ndarray,
) -> np.ndarray:
    """Return raw scores, float64 (n, O), of a CUDA kernel with loops in place of threads."""
    tables = [*strategy.shared(forest).values(), *strategy.tables(forest, config).values()]
    return serial_sums(strategy, workload, config, tables, X) / ensemble.divisor + ensemble.base_score


def emulated_scores(
    strategy: Strategy,
    workload: Workload,
    ensemble: TreeEnsemble,
    forest: Forest,
    config: Config,
    X: np.ndarray,
) -> np.ndarray:
    """Return raw scores, float64 (n, O), of a kernel's unchanged CUDA source (see `emulated`)."""
    tables = [*strategy.shared(forest).values(), *strategy.tables(forest, config).values()]
    return emulated(strategy, workload, config, tables, X, ensemble.base_score, ensemble.divisor)


def serial_sums(
    strategy: Strategy, workload: Workload, config: Config, tables: Sequence[np.ndarray], X: np.ndarray
) -> np.ndarray:
    """Return plain sums, float64 (n, O), of a CUDA kernel with loops in place of threads."""
    signature = strategy.signature(workload, config)
    tiles = -(-len(X) // signature.row_tile)
    rows = np.zeros((tiles * signature.row_tile, X.shape[1]), X.dtype)
    rows[: len(X)] = X
    scores = np.full(signature.scores.sizes(tiles=tiles), np.nan)
    serial_run(strategy.module(workload, config), [rows.reshape(tiles, -1, X.shape[1]), *tables, scores])
    return _by_rows(signature, scores)[: len(X)]


def _by_rows(signature: Signature, scores: np.ndarray) -> np.ndarray:
    """Return sums of parts by rows, (tiles * R, O)."""
    if signature.by_row:
        return scores.reshape(-1, signature.outputs)
    parts = scores.reshape(len(scores), signature.parts, signature.outputs, signature.row_tile)
    return parts.sum(axis=1).transpose(0, 2, 1).reshape(-1, signature.outputs)


def serial_run(module: Any, arrays: list[np.ndarray]) -> None:
    """Call a kernel, with loops in place of threads, on its arrays, the scores last."""
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    # Hardly optimized, for a single call; but half precision is slow without the features of the CPU.
    features = [f"+{name}" for name in CPU["features"]]
    target = tvm.target.Target({"kind": "llvm", "mcpu": CPU["mcpu"], "mattr": features, "opt-level": 1})
    with target, tvm.transform.PassContext(config=UNCHECKED):
        tvm.compile(rewrite_loops(serial(module)), target=target)["main"](*tensors)
    arrays[-1][:] = tensors[-1].numpy()


def emulated(
    strategy: Strategy,
    workload: Workload,
    config: Config,
    tables: Sequence[np.ndarray],
    X: np.ndarray,
    base: np.ndarray | None = None,
    divisor: float = 1.0,
) -> np.ndarray:
    """Return raw scores, float64 (n, O), of a kernel's unchanged CUDA source, barriers and warps included.

    The source is compiled for the CPU with `cuda_emulation.h` in place of CUDA's headers. Behind the rows,
    and behind the scores, lies memory that nobody may touch.
    """
    signature = strategy.signature(workload, config)
    source, launch = source_and_launch(strategy.module(workload, config), GPU, signature.parts)
    text = source[source.rindex(f"{launch.function}(") :].partition("(")[2].partition(")")[0]
    types = [one.rpartition(" ")[0].replace("__restrict__", "") for one in text.split(",")]
    base = np.zeros(signature.outputs) if base is None else np.ascontiguousarray(base, np.float64)
    tiles, direct = -(-len(X) // signature.row_tile), signature.parts == 1
    rows = guarded(X.shape, X.dtype)
    rows[:] = X
    made = (len(X), signature.outputs) if direct else signature.scores.sizes(tiles=tiles)
    scores = guarded(made, np.dtype(np.float64))
    shapes = signature.shapes(tables, tiles)
    addresses = [array.ctypes.data for array in (rows, *tables, scores)]
    scaling = Scaling(base.ctypes.data, float(base[0]), divisor)
    given = launch.values(addresses, shapes, len(X), scaling)
    calls = [f"({kind}){value.value}" for kind, value in zip(types, given, strict=True)]
    (x, y, _), (wide, high, _) = launch.blocks(shapes), launch.block
    text = (
        kernel_text(source)
        + f"static void one() {{ {launch.function}({', '.join(calls)}); }}\n"
        + 'extern "C" void launch(bool backwards) {\n'
        + f"emulation::size_shared(fixed_{launch.function}, {launch.shared});\n"
        + f"for (blockIdx.y = 0; blockIdx.y < {y}; ++blockIdx.y)\n"
        + f"for (blockIdx.x = 0; blockIdx.x < {x}; ++blockIdx.x)\n"
        + f"emulation::block({wide}, {high}, backwards, one); }}\n"
    )
    found = []
    with tempfile.TemporaryDirectory() as folder:
        run = ctypes.CDLL(compiled(text, str(Path(folder, "kernel.so")))).launch
        for backwards in (False, True):
            scores[...] = np.nan
            run(backwards)
            found.append(scores.copy())
    np.testing.assert_array_equal(*found)
    return found[0] if direct else _by_rows(signature, found[0])[: len(X)] / divisor + base


def guarded(shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
    """Return an array at whose end memory begins that can be neither read nor written."""
    size, page = math.prod(shape) * dtype.itemsize, mmap.PAGESIZE
    whole = -(-size // page) * page
    memory = mmap.mmap(-1, whole + page)
    address = np.frombuffer(memory, np.uint8).ctypes.data
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    assert protect(ctypes.c_void_p(address + whole), ctypes.c_size_t(page), 0) == 0
    return np.frombuffer(memory, dtype, math.prod(shape), whole - size).reshape(shape)


def compiled(text: str, path: str, *options: str) -> str:
    """Compile C++ that may include ``cuda_emulation.h`` to a shared library; return its path."""
    arguments = [*_OPTIONS, "-shared", *options]

    def build() -> bytes:
        command = ["g++", *arguments, "-I", _headers(), "-x", "c++", "-", "-o", path]
        done = subprocess.run(command, input=text, text=True, capture_output=True)
        assert done.returncode == 0, done.stderr[:2000]
        return Path(path).read_bytes()

    compiler = shutil.which("g++")
    assert compiler
    Path(path).write_bytes(kept(compiler, [*arguments, text], [_HEADER], build, KERNELS))
    return path


@functools.cache
def _headers() -> str:
    """Return the folder of the emulation's header, precompiled for the same options, which saves half."""
    folder = tempfile.TemporaryDirectory(prefix="hbtvm-tests-")
    weakref.finalize(_headers, folder.cleanup)
    header = str(Path(folder.name, "cuda_emulation.h"))
    shutil.copy(_HEADER, header)
    subprocess.run(["g++", *_OPTIONS, "-x", "c++-header", header, "-o", f"{header}.gch"], check=True)
    return folder.name


def kernel_text(source: str) -> str:
    """Return the source of a kernel and its helpers, without TVM's prologue of every kernel."""
    helper = re.search(rf"__forceinline__ __device__ void (multiply_|{BARRIER})", source)
    text = source[helper.start() if helper else source.index('extern "C" __global__') :]
    dynamic = r"extern __shared__ \S+ ([\w ]+) (\w+)\[\];"
    text = re.sub(dynamic, r"\1* \2 = (\1*)emulation::dynamic_shared();", text)
    kernels = re.split(r'(?=extern "C" __global__)', text)
    return f'#include "cuda_emulation.h"\n{helpers(text)}{"".join(map(_with_shared, kernels))}'


def _with_shared(kernel: str) -> str:
    """Return a kernel whose static shared memory is the emulation's, with its bytes as ``fixed_NAME``."""
    sizes = ["0"]

    def place(found: re.Match[str]) -> str:
        kind, name, count = found.groups()
        start = " + ".join(sizes)
        sizes.append(f"(sizeof({kind}) * {count} + 63) / 64 * 64")
        return f"{kind}* {name} = ({kind}*)(emulation::fixed_shared() + {start});"

    kernel = re.sub(r"__shared__ alignas\(64\) ([\w ]+) (\w+)\[(\d+)\];", place, kernel)
    assert "__shared__" not in kernel
    name = re.search(KERNEL, kernel)
    return f"static const size_t fixed_{name['name']} = {' + '.join(sizes)};\n{kernel}" if name else kernel


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
