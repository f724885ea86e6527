"""Compile scheduled modules to a GPU's machine code, and derive its launch without TVM.

OpenCL's code is source, which a device's driver compiles when it loads a package.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from pathlib import Path
from typing import Any

import tvm_ffi
from tvm import ir, tirx

from hbtvm import codec
from hbtvm.compiler.building.cuda_source import PORTABLE, lower, machine_code
from hbtvm.compiler.building.cuda_toolkit import nvcc
from hbtvm.compiler.lowering.cuda.output_kernel import output_source
from hbtvm.compiler.lowering.cuda.row_bounds import with_bounds
from hbtvm.compiler.lowering.cuda.score_epilogue import epilogue_source
from hbtvm.compiler.lowering.gather import gather_source
from hbtvm.errors import BuildError
from hbtvm.runtime.gpu.launch import BASE, BASE_SCORE, COUNT, DIVISOR, Launch, Size
from hbtvm.schedules.cuda.carveout import ATTRIBUTE
from hbtvm.schedules.workload import Target
from hbtvm.tuning.measuring.program import InvalidConfigError

_AXES = ("blockIdx.x", "blockIdx.y", "blockIdx.z", "threadIdx.x", "threadIdx.y", "threadIdx.z")
_SHARED = "tirx.use_dyn_shared_memory"


def source_and_launch(module: Any, target: Target, parts: int = 1, bounds: bool = True) -> tuple[str, Launch]:
    """Return the source of a scheduled module, score epilogue included, and its kernel's launch.

    `parts`: partial sums of each score, which the epilogue adds.
    `bounds`: whether the kernel has bounds (see `hbtvm.compiler.lowering.cuda.row_bounds`).
    Raises `BuildError` if a `Launch` cannot describe the kernel's launch.
    """
    if bounds:
        module = with_bounds(module, parts)
    source, host = lower(module, target)
    launch = _launch(module["main"], host)
    if target["kind"] == "opencl":
        source = _with_block(source, launch)
    return source + epilogue_source(parts, target["kind"]), launch


def build_code(
    module: Any, target: Target, portable: bool, parts: int = 1, gathers: bool = False, outputs: bool = False
) -> tuple[bytes, Launch]:
    """Compile a scheduled module to machine code.

    `parts`: as in `source_and_launch`.
    `portable`: whether to add code for other GPUs (see `hbtvm.compiler.building.cuda_source.machine_code`).
    `gathers`: whether to add the kernel that gathers rows (see `hbtvm.compiler.lowering.gather`).
    `outputs`: whether to add that of outputs (see `hbtvm.compiler.lowering.cuda.output_kernel`).
    Returns the machine code, and its kernel's launch. Raises `BuildError` if there is no CUDA compiler, or it
    fails.
    """
    source, launch = source_and_launch(module, target, parts)
    source += (gather_source(target["kind"]) if gathers else "") + (output_source() if outputs else "")
    return code_of(source, target, portable), launch


def code_of(source: str, target: Target, portable: bool = False) -> bytes:
    """Return the machine code of source; errors and `portable` as in `build_code`."""
    if target["kind"] == "opencl":
        return source.encode()
    return machine_code(source, target, portable=portable)[0]


def code_without_spills(source: str, target: Target) -> bytes:
    """Return the machine code as `code_of` does.

    Raises `InvalidConfigError` if a kernel spills registers to memory.
    """
    if target["kind"] == "opencl":
        return source.encode()
    code, report = machine_code(source, target, "-Xptxas=-v")
    spilled = sum(map(int, re.findall(r"(\d+) bytes spill stores", report)))
    if spilled:
        raise InvalidConfigError(f"it spills {spilled} bytes of registers")
    return code


def check_toolkit(target: Target) -> None:
    """Check that this machine can compile for a GPU.

    Raises `BuildError` if there is no CUDA compiler that knows the architecture.
    """
    nvcc()
    try:
        machine_code("", target, portable=False)
    except BuildError as error:
        raise BuildError(
            f"this machine's CUDA compiler has no code for {target['arch']} ({error}); packages need one for "
            f"that and sm_{PORTABLE}"
        ) from None


def _with_block(source: str, launch: Launch) -> str:
    """Declare the threads of an OpenCL kernel's blocks, without which some drivers allow 256 at most."""
    x, y, z = launch.block
    start = f"void {launch.function}("
    return source.replace(
        f"__kernel {start}", f"__kernel __attribute__((reqd_work_group_size({x}, {y}, {z}))) {start}"
    )


def write_code(path: str, code: bytes, launch: Launch) -> None:
    """Write a candidate's code and launch to a file, atomically."""
    write_whole(path, json.dumps(codec.write(launch), sort_keys=True).encode() + b"\n" + code)


def write_whole(path: str, content: bytes) -> None:
    """Write a file atomically."""
    folder, name = os.path.split(os.path.abspath(path))
    descriptor, temporary = tempfile.mkstemp(dir=folder, prefix=f".{name[:40]}.")
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
    os.replace(temporary, path)


def read_code(path: str) -> tuple[bytes, Launch]:
    """Return the code and the launch that `write_code` wrote."""
    head, _, code = Path(path).read_bytes().partition(b"\n")
    return code, codec.read(Launch, json.loads(head))


def _launch(kernel: Any, host: Any) -> Launch:
    """Read a kernel's launch from the lowered host function that starts it.

    `kernel`: the scheduled function, whose parameters are the arrays.
    `host`: the lowered host function, which has the call.
    """
    calls: list[Any] = []

    def look(call: Any) -> None:
        if getattr(call.op, "name", "") == "tirx.call_ffi_kernel":
            calls.append(call)

    tvm_ffi.structural_walk(host.body, (ir.Call, look))
    if len(calls) != 1:
        raise BuildError(f"a schedule for GPUs makes one kernel, this one makes {len(calls)}")
    (call,) = calls
    names = [str(name) for name in call.attrs.launch_params]
    arguments, extents = (
        list(call.args[1 : len(call.args) - len(names)]),
        call.args[len(call.args) - len(names) :],
    )
    named = (COUNT, BASE, BASE_SCORE, DIVISOR)
    arrays = {str(array.name): n for n, array in enumerate(kernel.params) if str(array.name) not in named}
    sizes: dict[str, Size] = {
        str(extent.name): (number, axis)
        for number in arrays.values()
        for axis, extent in enumerate(kernel.params[number].ty.shape)
        if isinstance(extent, tirx.Var) and str(extent.name) not in named
    }

    def size(value: Any) -> Size:
        if isinstance(value, tirx.IntImm):
            return int(value)
        if isinstance(value, tirx.Var) and str(value.name) in sizes:
            return sizes[str(value.name)]
        raise BuildError(f"a kernel takes {value}, which is not a size of its arrays")

    def argument(value: Any) -> Size | str:
        if isinstance(value, ir.Call):  # an array's address
            name = str(value.args[0].name)
            return name if name in named else arrays[name]
        if isinstance(value, tirx.Var) and str(value.name) in named:
            return str(value.name)
        if not isinstance(value, tirx.Var) or str(value.ty.dtype) != "int64":
            raise BuildError(f"a kernel takes {value}, which is neither an array nor a size of 64 bits")
        return size(value)

    by_axis = {name: size(extent) for name, extent in zip(names, extents, strict=True)}
    x, y, z, *block = (by_axis.pop(axis, 1) for axis in _AXES)
    shared = by_axis.pop(_SHARED, 0)
    if by_axis or not all(isinstance(size, int) for size in (*block, shared)):
        raise BuildError(f"a kernel is started with {', '.join(names)}, which packages can't tell")
    width, height, depth = (int(size) for size in block)  # type: ignore[arg-type]
    wanted = kernel.attrs.get(ATTRIBUTE) if kernel.attrs is not None else None
    return Launch(
        str(call.args[0].value),
        tuple(map(argument, arguments)),
        (x, y, z),
        (width, height, depth),
        int(shared),  # type: ignore[arg-type]
        None if wanted is None else int(wanted),
    )
