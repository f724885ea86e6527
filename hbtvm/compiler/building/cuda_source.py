"""Lower scheduled modules to CUDA or OpenCL source, and compile the former to machine code."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import tvm
import tvm_ffi
from tvm import s_tir, tirx
from tvm.tirx.build import split_host_device_mods

from hbtvm.compiler.building.cuda_toolkit import nvcc
from hbtvm.compiler.lowering.cuda import kept_bits, near_entries, prefetch
from hbtvm.compiler.lowering.cuda.constants import exact_constants
from hbtvm.compiler.lowering.cuda.grid_stride import grid_stride
from hbtvm.compiler.lowering.cuda.keys import with_keys
from hbtvm.compiler.lowering.cuda.pairs import with_pairs
from hbtvm.compiler.lowering.cuda.pairs_source import operations
from hbtvm.compiler.lowering.cuda.shapley.walk import make_steps
from hbtvm.compiler.lowering.cuda.tensor_cores import multiply
from hbtvm.compiler.lowering.rewrites import REWRITES, rewrite_loops
from hbtvm.compiler.lowering.row_loops import make_row_loop
from hbtvm.compiler.targets.target import tvm_target
from hbtvm.errors import BuildError
from hbtvm.runtime.cuda.kernel import OLDEST_PORTABLE
from hbtvm.runtime.native.objects.cache import KERNELS, kept
from hbtvm.schedules.cuda.gemm import TENSOR
from hbtvm.schedules.cuda.network import MULTIPLY_ADD
from hbtvm.schedules.cuda.steps import GRID_STRIDED, PAIRED, PREFETCHED
from hbtvm.schedules.network.loops import LOOP_ROWS
from hbtvm.schedules.reasons.cuda import SHAPLEY_STEPS
from hbtvm.schedules.statements import registers
from hbtvm.schedules.workload import Target

LOWERING = (
    # TVM's first passes for GPUs, until blocks are lowered and buffers are flat.
    s_tir.transform.CanonicalizeLoop,
    s_tir.transform.LowerCrossThreadReduction,
    s_tir.transform.LowerInitBlock,
    s_tir.transform.PlanAndUpdateBufferAllocationLocation,
    s_tir.transform.ConvertBlocksToOpaque,
    s_tir.transform.LiftThreadBinding,
    s_tir.transform.CompactBufferAllocation,
    s_tir.transform.UnifyThreadBinding,
    s_tir.transform.LowerMatchBuffer,
    s_tir.transform.StmtSimplify,
    s_tir.transform.LowerOpaqueBlock,
    tirx.transform.FlattenBuffer,
)

_REWRITES = {
    **REWRITES,
    LOOP_ROWS: lambda loop: make_row_loop(loop, registers),
    TENSOR: multiply,
    PREFETCHED: prefetch.prefetch,
    GRID_STRIDED: grid_stride,
    SHAPLEY_STEPS: make_steps,
}

# TVM's flags would flush denormal numbers to zero, which changes some rows' leaves.
_FLAGS = ("-O3", "-ftz=false")

ROUNDED_ONCE = "// A product and a sum may be rounded once.\n"
"""First line of the source of functions with the attribute `MULTIPLY_ADD`."""

_OPENCL = """#pragma OPENCL FP_CONTRACT {}
#undef select
#define select(no, yes, condition) ((condition) ? (yes) : (no))
"""
"""First lines of OpenCL source: whether a product and a sum may be rounded once, and a function of OpenCL
that is overloaded, which TVM calls with numbers of other types than the function's."""


_DOUBLES = re.compile(r"#ifdef cl_khr_fp64\n.*?#endif\n", re.DOTALL)
"""What the generator writes before OpenCL kernels with float64 numbers: devices without them are refused."""

_LOCAL = re.compile(r"(__local \w+ \w+\[\d+\]);")
"""An array in local memory; the generator may read it as one of a wider type."""

PORTABLE = "{}{}".format(*OLDEST_PORTABLE)
"""Compute capability of the PTX in portable code: the oldest that CUDA 13 compiles for; later GPUs run it."""


def cuda_source(module: Any, target: Target) -> str:
    """Return the CUDA source of a scheduled module's kernels; needs neither a GPU nor a CUDA compiler."""
    return lower(module, target)[0]


def lower(module: Any, target: Target) -> tuple[str, Any]:
    """Return the source of a scheduled module's kernels, and the host function that starts them."""
    if target["kind"] == "opencl":
        source, host, _ = split(_lowered(module, _of_one_type), target)
        return _OPENCL.format("ON" if _has(module, MULTIPLY_ADD) else "OFF") + source, host["main"]
    source, host, _ = split(_lowered(module), target)
    return _head(module) + helpers(source) + source, host["main"]


def helpers(source: str) -> str:
    """Return the helper functions that CUDA source calls."""
    return "".join(
        helper.SOURCE for helper in (near_entries, kept_bits, prefetch) if f"{helper.NAME}(" in source
    )


def _with_calls(function: Any) -> Any:
    """Return a lowered function that calls the functions of `helpers`."""
    return kept_bits.keep_bits(near_entries.read_near(_of_one_type(function)))


def _lowered(module: Any, change: Callable[[Any], Any] = _with_calls) -> Any:
    """Return a scheduled module after TVM's first passes, with annotated loops rewritten.

    `change`: changes the lowered functions.
    """
    rewritten = rewrite_loops(module, LOWERING, _REWRITES)
    return tirx.transform.prim_func_pass(lambda function, *_: change(function), opt_level=0)(rewritten)


def _of_one_type(function: Any) -> Any:
    """Cast the operands of a lowered function's comparisons to common types.

    TVM's simplifier leaves comparisons of 32-bit thread indices with 64-bit bounds, which its next pass
    refuses.
    """

    def same(comparison: Any) -> Any:
        kind = str(comparison.a.ty.dtype)
        return (
            comparison
            if str(comparison.b.ty.dtype) == kind
            else tirx.LT(comparison.a, comparison.b.astype(kind))
        )

    return function.with_body(tvm_ffi.structural_map(function.body, (tirx.LT, same)))


def split(module: Any, target: Target, shared: str | None = None) -> tuple[str, Any, Any]:
    """Return the source of a lowered module's kernels, the host's module, and the kernels.

    `shared`: name of a kernel that reads other blocks' results while it runs, so that its arguments are not
        ``__restrict__``.
    """
    tvm_device = tvm_target(target)
    graph, _, finalize = tirx.get_default_tir_pipeline(tvm_device)
    host, devices = split_host_device_mods(graph(tirx.transform.BindTarget(tvm_device)(module)))
    ((device, kernels),) = devices.items()
    if shared is not None:
        kernels[shared] = kernels[shared].with_attr("tirx.noalias", False)
    final = finalize()(kernels)
    opencl, paired, keys = target["kind"] == "opencl", None, ""
    if opencl:
        rounded = _has(module, PAIRED)
        keyed, keys = (final, "") if rounded else with_keys(final)
        paired = with_pairs(keyed, rounded)
        final = exact_constants(final if paired is None else paired)
    with tvm_device:
        generated = tvm.get_global_func(f"target.build.{target['kind']}")(final, device)
    source = _DOUBLES.sub("", _with_whole_warps(str(generated.inspect_source())))
    if opencl:
        aligned = _LOCAL.sub(r"\1 __attribute__((aligned(16)));", source)
        source = operations(source, paired is not None) + aligned
        source = source if paired is None else keys + source
    return source, host, kernels


def _with_whole_warps(source: str) -> str:
    """Make shuffles wait for all threads of their warp.

    TVM's reductions name the threads that are active at the time, which after loops of different lengths may
    be some of the warp's. Reductions are outside of branches, so all threads of a block reach them.
    """
    return source.replace("__activemask()", "0xffffffffu")


def _head(module: Any) -> str:
    return ROUNDED_ONCE if _has(module, MULTIPLY_ADD) else ""


def _has(module: Any, attribute: str) -> bool:
    """Return whether one of a module's functions has an attribute."""
    found = [function.attrs for function in module.functions.values()]
    return any(attributes is not None and attribute in attributes for attributes in found)


def machine_code(source: str, target: Target, *options: str, portable: bool = False) -> tuple[bytes, str]:
    """Compile CUDA source for a target's architecture.

    Raises `BuildError` if there is no compiler, or it fails.

    `options`: more options for the compiler.
    `portable`: whether to add PTX, which a driver compiles for any other GPU of compute capability `PORTABLE`
        or later.
    Returns the machine code (a cubin, or a fatbin if portable), and the compiler's messages (with
    ``-Xptxas=-v`` among the options: registers, spills, stack and shared memory of each kernel).
    """
    number = str(target["arch"]).removeprefix("sm_")
    kinds = ["--cubin", f"-arch=sm_{number}"]
    if portable:
        codes = [(number, f"sm_{number}"), (PORTABLE, f"compute_{PORTABLE}")]
        kinds = ["--fatbin", *(f"-gencode=arch=compute_{arch},code={code}" for arch, code in codes)]
    rounding = "--fmad=true" if source.startswith(ROUNDED_ONCE) else "--fmad=false"
    command = [nvcc(), *kinds, *_FLAGS, rounding, *options]
    content = kept(
        command[0], [*command[1:], source], (), lambda: _compiled(command, source), KERNELS, library=False
    )
    size = int.from_bytes(content[-8:], "little")
    return content[:size], content[size:-8].decode()


def _compiled(command: list[str], source: str) -> bytes:
    """Run the compiler; return the machine code, its messages, and the size of the former."""
    with tempfile.TemporaryDirectory(prefix="hbtvm-") as folder:
        source_file, binary = Path(folder, "kernels.cu"), Path(folder, "kernels.bin")
        source_file.write_text(source)
        done = subprocess.run([*command, "-o", str(binary), str(source_file)], capture_output=True, text=True)
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if "error" in line] or [done.stderr.strip()]
            raise BuildError(f"nvcc could not compile a kernel: {errors[0]}")
        code = binary.read_bytes()
        return code + done.stderr.encode() + len(code).to_bytes(8, "little")


def compile_cuda(module: Any, target: Target, portable: bool = False) -> Any:
    """Compile a scheduled module, host code included, to a TVM executable that links like a CPU's kernel.

    TVM's CUDA runtime must be loaded, which needs NVIDIA's driver or stubs (see
    `hbtvm.compiler.building.cuda_stubs`). `portable` is as in `machine_code`.
    """
    device = tvm_target(target)
    with _compiler(target, portable, _head(module)), device:
        return tvm.compile(_lowered(module), target=device)


@contextmanager
def _compiler(target: Target, portable: bool, first: str) -> Iterator[None]:
    """Make TVM compile CUDA source, after a first line, by `machine_code` within the context."""
    name = "tvm_callback_cuda_compile"
    before = tvm.get_global_func(name)

    def compiled(source: str) -> bytes:
        text = first + helpers(source) + _with_whole_warps(source)
        return machine_code(text, target, portable=portable)[0]

    tvm.register_global_func(name, compiled, override=True)
    try:
        yield
    finally:
        tvm.register_global_func(name, before, override=True)
