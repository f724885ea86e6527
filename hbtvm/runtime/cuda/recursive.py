"""`RecursiveDevice`: a recursive model on a GPU, from structures to what is read of their states.

The host finds levels, and lays out what comes with nodes by row; one copy brings that to the device. Steps
are started level by level in one stream, or one kernel goes through all levels. Rows of states from the
lowest that is read come back, and the host reads results out of them.
"""

from __future__ import annotations

import ctypes
import math
import os
import weakref
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hbtvm.errors import DeviceError, PackageError
from hbtvm.runtime.cuda import driver
from hbtvm.runtime.cuda.kernel import TableStore, check_gpu
from hbtvm.runtime.cuda.launch import pointers
from hbtvm.runtime.cuda.memory import Memory, Module, Pinned, Stream
from hbtvm.runtime.native.description import Kept
from hbtvm.runtime.native.library import Library
from hbtvm.runtime.recursive import binding as c
from hbtvm.runtime.recursive.arrays import address, checked
from hbtvm.runtime.recursive.description import model_of
from hbtvm.runtime.recursive.entry import Program, RecursionEntry, RecursionKernels, Step
from hbtvm.runtime.recursive.host import batch_of, fail

_ALIGNMENT = 256
"""Arrays of a call begin at multiples of so many bytes, as the driver's memory does."""


class RecursiveDevice:
    """A recursive model on one device. Safe to call from several threads at once.

    Parameters
    ----------
    library
        The executor's code.
    entry
        The model, with kernels for GPUs.
    arch
        What it was compiled for.
    index
        The device's number.

    Raises
    ------
    PackageError
        If the device can't run the code, or the executor has no such functions.
    DeviceError
        If there is no such device, or it has too little memory.
    """

    def __init__(self, library: Library, entry: RecursionEntry, arch: str, index: int) -> None:
        self._library, self.entry = c.bind_rows(library), entry
        try:
            self._gpu = gpu = driver.gpu(index)
        except driver.CudaError:
            raise
        except DeviceError as error:
            raise PackageError(f"the model was compiled for an NVIDIA GPU ({arch}), but {error}") from None
        check_gpu(gpu, arch)
        self._process = os.getpid()
        self._width = math.prod(entry.shape)
        # The executor calls no kernel here: it is told of batch sizes, but of no steps.
        plain = Program(())
        bare = [replace(one, leaf=plain, inner=plain, first=None, tables=()) for one in entry.kernels]
        kept = Kept()
        model = model_of(kept, replace(entry, kernels=tuple(bare)), [{}] * len(bare))
        kept.objects.append(model)
        self._handle = library.recursive_open(ctypes.addressof(model), 1)
        if not self._handle:
            raise MemoryError("there is no memory for the model.")
        weakref.finalize(self, _close, library, self._handle, kept).atexit = False
        with gpu.current():
            put = TableStore(gpu).put
            self._kernels = [_Kernels(gpu, one, [put(table) for table in one.tables]) for one in entry.kernels]
        self._spare: list[_Lane] = []

    def check_process(self) -> None:
        """Check that this process did not inherit the device from its parent.

        Raises
        ------
        DeviceError
            If it did: a CUDA context does not survive a fork.
        """
        if os.getpid() != self._process:
            raise DeviceError(
                "a forked process can't use the GPU that its parent has used; start it by 'spawn', or load "
                "the model in the child only."
            )

    def run(self, structures: Any) -> np.ndarray:
        """What is read of the states of structures; parameters, result and errors as `RecursiveHost.run`.

        Raises
        ------
        DeviceError
            If the device has too little memory, or fails.
        """
        self.check_process()
        arrays = checked(structures, self.entry.inputs)
        batch, _kept = batch_of(arrays)
        rows, place = c.Rows(), c.Place()
        handle, ours = self._handle, (ctypes.byref(batch), ctypes.byref(rows))
        status = self._library.recursive_begin(handle, *ours, ctypes.byref(place))
        if status:
            fail(self.entry, status, place)
        try:
            out = np.empty((rows.results, self._width), np.float32)
            kernels = self._kernels[int(self._library.recursive_choice(handle, batch.structures))]
            state = 0
            with self._gpu.current():
                lane = self._spare.pop() if self._spare else _Lane(self._gpu)
                if rows.levels:
                    call = _Call(self.entry, batch.nodes, rows)
                    lane.reserve(call, kernels)
                    self._library.recursive_fill(handle, *ours, lane.host(call.child), lane.inputs(call))
                    state = lane.run(call, kernels)
            # (A lane whose call failed may still be in use, so it does not return to the free list.)
            status = self._library.recursive_read(handle, *ours, state, address(out))
            self._spare.append(lane)
        finally:
            self._library.recursive_end(handle, ctypes.byref(rows))
        if status:
            fail(self.entry, status, place)
        return out


class _Call:
    """Sizes of a call, and where its arrays begin in the memory that is copied to the device.

    Attributes
    ----------
    levels, child, inputs
        Offsets in bytes; the barrier's counter is ahead of them.
    size
        Bytes of all.
    """

    def __init__(self, entry: RecursionEntry, nodes: int, rows: c.Rows) -> None:
        self.rows, self.count, self.width = nodes + 1, int(rows.levels), entry.width
        self.arity, self.widest, self.first_read = int(rows.arity), int(rows.widest), int(rows.first_read)
        self.starts = np.ctypeslib.as_array((ctypes.c_int32 * (self.count + 1)).from_address(rows.start))
        self._end = 8
        self.levels = self._place(4 * (self.count + 1))
        self.child = self._place(4 * self.rows * self.arity)
        sizes = [one.size if one.kind == "vector" else 1 for one in entry.inputs]
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


class _Kernels:
    """Kernels of one batch size, loaded."""

    def __init__(self, gpu: driver.Gpu, kernels: RecursionKernels, tables: list[Memory]) -> None:
        self.tables, self.scratch = tables, kernels.inner.scratch
        try:
            self._module = Module(gpu, kernels.library)
            one = kernels.persistent
            self.persistent = None if one is None else _loaded(gpu, self._module, one)
            self._programs = [
                [_loaded(gpu, self._module, step) for step in program.main] if one is None else []
                for program in kernels.programs
            ]
        except driver.CudaError as error:
            if not error.unreadable:
                raise
            raise PackageError(
                f"cuda:{gpu.index} ({gpu.name}, {gpu.arch}) can't run the model's code: its driver, for CUDA "
                f"{gpu.driver.version()}, is older than what the model was compiled with; update the driver."
            ) from None
        self.blocks = 0
        if self.persistent is not None:
            resident = gpu.driver.number(
                "cuOccupancyMaxActiveBlocksPerMultiprocessor",
                self.persistent.function,
                self.persistent.step.threads,
                0,
            )
            self.blocks = max(1, int(resident)) * gpu.multiprocessors

    def of_level(self, level: int) -> list[_Started]:
        """Steps of a level: of nodes without children, then of those above them, then of others."""
        if level == 0:
            return self._programs[0]
        return self._programs[2 if level == 1 and len(self._programs) > 2 else 1]


def _loaded(gpu: driver.Gpu, module: Module, step: Step) -> _Started:
    return _Started(step, gpu.function(module.handle, step.function))


class _Lane:
    """A stream, and the memory of a call, kept for the next one."""

    def __init__(self, gpu: driver.Gpu) -> None:
        self._gpu, self._stream = gpu, Stream(gpu)
        self._given = self._read = Pinned(gpu, 0)
        self._arrays = self._state = self._scratch = Memory(gpu, 0)

    def reserve(self, call: _Call, kernels: _Kernels) -> None:
        """Find memory for a call; what was in it is lost."""
        gpu, state = self._gpu, 4 * call.rows * call.width
        if self._given.array.size < call.size:
            self._given, self._arrays = Pinned(gpu, call.size), Memory(gpu, call.size)
        if self._read.array.size < state:
            self._read, self._state = Pinned(gpu, state), Memory(gpu, state)
        scratch = 4 * call.widest * sum(kernels.scratch)
        if self._scratch.size < scratch:
            self._scratch = Memory(gpu, scratch)

    def host(self, offset: int) -> int:
        """Address of an array on the host, where it is written."""
        return int(self._given.handle) + offset

    def inputs(self, call: _Call) -> Any:
        """Addresses of inputs on the host."""
        return (ctypes.c_void_p * len(call.inputs))(*map(self.host, call.inputs))

    def run(self, call: _Call, kernels: _Kernels) -> int:
        """Compute the states of a call whose arrays are written; the address of what came back of them."""
        given, run, stream = self._given.array, self._gpu.driver.call, self._stream.handle
        given[:8] = 0
        given[call.levels : call.levels + 4 * (call.count + 1)] = call.starts.view(np.uint8)
        run("cuMemcpyHtoDAsync_v2", self._arrays.handle, self._given.handle, call.size, stream)
        run("cuMemsetD8Async", self._state.handle, 0, 4 * call.width, stream)
        if kernels.persistent is None:
            self._by_level(call, kernels)
        else:
            step = kernels.persistent.step
            blocks = min(-(-call.widest // step.tile) * step.panels, kernels.blocks)
            values = self._values(call, kernels, step, count=call.count, blocks=blocks)
            sizes = (blocks, 1, 1, step.threads, 1, 1, 0)
            run(
                "cuLaunchCooperativeKernel", kernels.persistent.function, *sizes, stream, pointers(values)
            )
        start = 4 * call.first_read * call.width
        size = 4 * call.rows * call.width - start
        back = int(self._read.handle)
        if size:
            run("cuMemcpyDtoHAsync_v2", back + start, self._state.handle + start, size, stream)
        self._stream.wait()
        return back

    def _by_level(self, call: _Call, kernels: _Kernels) -> None:
        """Start the steps of each level."""
        run, stream = self._gpu.driver.call, self._stream.handle
        laid: dict[int, tuple[list[Any], Any]] = {}
        nodes = np.diff(call.starts).tolist()
        for level in range(call.count):
            for one in kernels.of_level(level):
                step = one.step
                blocks = -(-nodes[level] // step.tile) * step.panels
                if one.function not in laid:
                    values = self._values(call, kernels, step, level=level, blocks=blocks)
                    laid[one.function] = values, pointers(values)
                values, given = laid[one.function]
                for value, argument in zip(values, step.arguments, strict=True):
                    if argument.role == "level":
                        value.value = level
                    elif argument.role == "blocks":
                        value.value = blocks
                sizes = (blocks, 1, 1, step.threads, 1, 1, 0)
                run("cuLaunchKernel", one.function, *sizes, stream, given, None)

    def _values(self, call: _Call, kernels: _Kernels, step: Step, **scalars: int) -> list[Any]:
        """The arguments of a kernel, as the driver takes them."""
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


def _close(library: Library, handle: int, kept: Kept) -> None:
    library.recursive_close(handle)
    kept.objects.clear()
