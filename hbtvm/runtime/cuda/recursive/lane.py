"""Calls of a recursive model on a GPU: their arrays, kernels, stream and memory."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np

from hbtvm.errors import PackageError
from hbtvm.runtime.cuda import driver
from hbtvm.runtime.cuda.compatibility import unreadable_code
from hbtvm.runtime.cuda.memory import Memory, Module, Pinned, Stream
from hbtvm.runtime.gpu.launch import pointers
from hbtvm.runtime.recursive import binding as c
from hbtvm.runtime.recursive.entry import RecursionEntry, RecursionKernels, Step

_ALIGNMENT = 256  # bytes; as for the driver's memory


class Call:
    """Sizes of a call, and offsets of its arrays in the memory that is copied to the device.

    `levels`, `child`, `inputs`: offsets in bytes; the barrier's counter precedes them.
    `size`: bytes in total.
    """

    def __init__(self, entry: RecursionEntry, nodes: int, rows: c.Rows) -> None:
        self.rows, self.count, self.width = nodes + 1, int(rows.levels), entry.width
        self.arity, self.widest, self.first_read = int(rows.arity), int(rows.widest), int(rows.first_read)
        self.starts = np.ctypeslib.as_array((ctypes.c_int32 * (self.count + 1)).from_address(rows.start))
        self._end = 8
        self.levels = self._place(4 * (self.count + 1))
        self.child = self._place(4 * self.rows * self.arity)
        sizes = [input_.size if input_.kind == "vector" else 1 for input_ in entry.inputs]
        self.inputs = [self._place(4 * self.rows * size) for size in sizes]
        self.size = self._end

    def _place(self, size: int) -> int:
        start = -(-self._end // _ALIGNMENT) * _ALIGNMENT
        self._end = start + size
        return start


@dataclass(frozen=True)
class _Started:
    """A step and its kernel on the device."""

    step: Step
    function: int


class LevelKernels:
    """Loaded kernels of a batch size."""

    def __init__(
        self, gpu: driver.Gpu, kernels: RecursionKernels, tables: list[Memory], toolkit: str
    ) -> None:
        self.tables, self.scratch = tables, kernels.inner.scratch
        try:
            self._module = Module(gpu, kernels.library)
            persistent = kernels.persistent
            self.persistent = None if persistent is None else _loaded(gpu, self._module, persistent)
            self._programs = [
                [_loaded(gpu, self._module, step) for step in program.main] if persistent is None else []
                for program in kernels.programs
            ]
        except driver.CudaError as error:
            if not error.unreadable:
                raise
            raise unreadable_code(gpu, toolkit, error) from None
        self._all = [step for program in kernels.programs for step in program.main]
        self.blocks = 0
        if self.persistent is not None:
            resident = gpu.driver.number(
                "cuOccupancyMaxActiveBlocksPerMultiprocessor",
                self.persistent.function,
                self.persistent.step.threads,
                self.persistent.step.shared,
            )
            self.blocks = max(1, int(resident)) * gpu.multiprocessors
            owners = self.persistent.step.panels if self.persistent.step.shared else 0
            if self.blocks < owners:
                raise PackageError(
                    f"cuda:{gpu.index} ({gpu.name}, {gpu.arch}) can't run the model's code: constants are "
                    f"kept by {owners} blocks, and it runs {self.blocks} at once; compile the model for it."
                )

    def blocks_of(self, nodes: int) -> int:
        """Return the blocks of the kernel for all levels, if the largest level has `nodes` nodes."""
        units = max(-(-nodes // step.tile) * step.panels for step in self._all)
        return min(units, self.blocks)

    def of_level(self, level: int) -> list[_Started]:
        """Return a level's steps: for leaves at level 0, their parents at level 1, else inner nodes."""
        if level == 0:
            return self._programs[0]
        return self._programs[2 if level == 1 and len(self._programs) > 2 else 1]


def _loaded(gpu: driver.Gpu, module: Module, step: Step) -> _Started:
    return _Started(step, gpu.function(module.handle, step.function, step.shared))


class Lane:
    """A stream and the memory of a call, kept for the next call; for `poison` see `RecursiveDevice`."""

    def __init__(self, gpu: driver.Gpu, poison: bool = False) -> None:
        self._gpu, self._stream, self._poison = gpu, Stream(gpu), poison
        self._staging = self._read = Pinned(gpu, 0)
        self._arrays = self._state = self._scratch = Memory(gpu, 0)

    def reserve(self, call: Call, kernels: LevelKernels) -> None:
        """Provide memory for a call; its previous contents are lost."""
        gpu, state = self._gpu, 4 * call.rows * call.width
        if self._staging.array.size < call.size:
            self._staging, self._arrays = Pinned(gpu, call.size), Memory(gpu, call.size)
        if self._read.array.size < state:
            self._read, self._state = Pinned(gpu, state), Memory(gpu, state)
        scratch = 4 * call.widest * sum(kernels.scratch)
        if self._scratch.size < scratch:
            self._scratch = Memory(gpu, scratch)

    def host(self, offset: int) -> int:
        """Return an array's address in the host's staging memory."""
        return int(self._staging.handle) + offset

    def inputs(self, call: Call) -> Any:
        """Return the inputs' addresses in the host's staging memory."""
        return (ctypes.c_void_p * len(call.inputs))(*map(self.host, call.inputs))

    def run(self, call: Call, kernels: LevelKernels) -> int:
        """Compute the states of a call whose arrays are written; return the address of the copied states."""
        buffer, run, stream = self._staging.array, self._gpu.driver.call, self._stream.handle
        buffer[:8] = 0
        buffer[call.levels : call.levels + 4 * (call.count + 1)] = call.starts.view(np.uint8)
        run("cuMemcpyHtoDAsync_v2", self._arrays.handle, self._staging.handle, call.size, stream)
        if self._poison:
            for memory in (self._state, self._scratch):
                run("cuMemsetD8Async", memory.handle, 0xFF, memory.size, stream)
        run("cuMemsetD8Async", self._state.handle, 0, 4 * call.width, stream)
        if kernels.persistent is None:
            self._by_level(call, kernels)
        else:
            step = kernels.persistent.step
            blocks = kernels.blocks_of(call.widest)
            values = self._values(call, kernels, step, count=call.count, blocks=blocks)
            sizes = (blocks, 1, 1, step.threads, 1, 1, step.shared)
            run("cuLaunchCooperativeKernel", kernels.persistent.function, *sizes, stream, pointers(values))
        start = 4 * call.first_read * call.width
        size = 4 * call.rows * call.width - start
        back = int(self._read.handle)
        if size:
            run("cuMemcpyDtoHAsync_v2", back + start, self._state.handle + start, size, stream)
        self._stream.wait()
        return back

    def _by_level(self, call: Call, kernels: LevelKernels) -> None:
        """Launch the steps of each level."""
        run, stream = self._gpu.driver.call, self._stream.handle
        laid: dict[int, tuple[list[Any], Any]] = {}
        nodes = np.diff(call.starts).tolist()
        for level in range(call.count):
            for kernel in kernels.of_level(level):
                step = kernel.step
                blocks = -(-nodes[level] // step.tile) * step.panels
                if kernel.function not in laid:
                    values = self._values(call, kernels, step, level=level, blocks=blocks)
                    laid[kernel.function] = values, pointers(values)
                values, parameters = laid[kernel.function]
                for value, argument in zip(values, step.arguments, strict=True):
                    if argument.role == "level":
                        value.value = level
                    elif argument.role == "blocks":
                        value.value = blocks
                sizes = (blocks, 1, 1, step.threads, 1, 1, 0)
                run("cuLaunchKernel", kernel.function, *sizes, stream, parameters, None)

    def _values(self, call: Call, kernels: LevelKernels, step: Step, **scalars: int) -> list[Any]:
        """Return a kernel's arguments for the driver."""
        arrays = self._arrays.handle
        values: list[Any] = []
        for argument in step.arguments:
            role, number = argument.role, argument.number
            if role in ("level", "count", "blocks"):
                values.append(ctypes.c_int64(scalars[role]))
                continue
            if role == "arity":
                values.append(ctypes.c_int64(call.arity))
                continue
            place = {
                "barrier": arrays,
                "levels": arrays + call.levels,
                "child": arrays + call.child,
                "state": self._state.handle,
            }.get(role, 0)
            if role in ("number", "vector"):
                place = arrays + call.inputs[number]
            elif role == "table":
                place = kernels.tables[number].handle
            elif role == "scratch":
                place = self._scratch.handle + 4 * call.widest * sum(kernels.scratch[:number])
            values.append(ctypes.c_uint64(place))
        return values
