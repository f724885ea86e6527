"""Resources of a process on a GPU: memory, code, streams and events, released with their last reference."""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from hbtvm.errors import DeviceError, PackageError
from hbtvm.runtime.cuda.driver import Gpu
from hbtvm.runtime.native.objects.elf import problem

_FATBIN = b"\x50\xed\x55\xba"
_NON_BLOCKING = 1
_UNTIMED = 2
_RELAXED = 2
"""Capture mode in which other calls don't end the capture (``CU_STREAM_CAPTURE_MODE_RELAXED``): the garbage
collector may release memory in any thread at any time."""


class _Resource:
    """A driver's handle, released when the object is collected.

    `release`: the driver's function that releases it.
    `make`: makes the driver write the handle to a place.
    `of`: type of the handle.
    """

    def __init__(
        self, gpu: Gpu, release: str, make: Callable[[Any], None], of: Any = ctypes.c_void_p
    ) -> None:
        self.gpu = gpu
        # The driver writes to the finalizer's object, so that Ctrl-C right after the call leaks no handle.
        handle = of()
        self._finalizer = weakref.finalize(self, _release, gpu, handle, release, os.getpid())
        # At interpreter exit the driver may be unloaded already, and releases everything itself.
        self._finalizer.atexit = False
        make(ctypes.byref(handle))
        self.handle = int(handle.value or 0)


def _release(gpu: Gpu, handle: Any, release: str, process: int) -> None:
    """Release a handle by the driver's function `release`, in the process that created it."""
    # A forked child must not release its parent's handle.
    if handle.value and os.getpid() == process:
        # After a fault of the device, releasing fails and is not needed.
        with contextlib.suppress(DeviceError), gpu.current():
            gpu.driver.call(release, handle.value)


class Memory(_Resource):
    """Device memory; `handle` is its address.

    `size`: bytes.
    Raises `CudaError` with code `driver.OUT_OF_MEMORY` if there is too little memory.
    """

    def __init__(self, gpu: Gpu, size: int) -> None:
        self.size = size
        super().__init__(gpu, "cuMemFree_v2", lambda to: gpu.allocate(to, size), ctypes.c_uint64)

    @classmethod
    def of(cls, gpu: Gpu, array: np.ndarray) -> Memory:
        """Return a completed copy of a contiguous array."""
        memory = cls(gpu, array.nbytes)
        if array.nbytes:
            gpu.driver.call("cuMemcpyHtoDAsync_v2", memory.handle, array.ctypes.data, array.nbytes, None)
            gpu.driver.call("cuStreamSynchronize", None)
        return memory


class Pinned(_Resource):
    """Page-locked host memory, for asynchronous copies and for kernels that read and write it.

    The device must be current.

    `array`: uint8, shape (size,).
    `device`: its address for kernels on the device.
    """

    def __init__(self, gpu: Gpu, size: int) -> None:
        count = max(size, 1)
        super().__init__(gpu, "cuMemFreeHost", lambda to: gpu.driver.call("cuMemHostAlloc", to, count, 0))
        self.array: np.ndarray = np.ctypeslib.as_array((ctypes.c_ubyte * size).from_address(self.handle))
        self.device = self.handle
        if not gpu.unified:
            query = "cuMemHostGetDevicePointer_v2", self.handle, 0
            self.device = int(gpu.driver.number(*query, of=ctypes.c_uint64))


def check_code(code: bytes) -> None:
    """Check that a GPU's code, a cubin or a fatbin, has the length that its headers state.

    Raises `PackageError` if it is not.
    """
    reason = problem(code, shared=False) if code[:4] == b"\x7fELF" else None
    if code[:4] == _FATBIN:
        cut_short = len(code) < 16 or sum(struct.unpack_from("<HQ", code, 6)) > len(code)
        reason = "it is cut short" if cut_short else None
    if reason:
        raise PackageError(f"a kernel's code can't be loaded: {reason}.")


class Module(_Resource):
    """Machine code loaded on a device.

    Raises `PackageError` if it is cut short: the driver takes no size, and would not notice. Raises
    `CudaError` if the driver cannot load it.
    """

    def __init__(self, gpu: Gpu, code: bytes) -> None:
        check_code(code)
        super().__init__(gpu, "cuModuleUnload", lambda to: gpu.driver.call("cuModuleLoadData", to, code))


class Stream(_Resource):
    """A stream that does not wait for the default stream."""

    def __init__(self, gpu: Gpu) -> None:
        super().__init__(
            gpu, "cuStreamDestroy_v2", lambda to: gpu.driver.call("cuStreamCreate", to, _NON_BLOCKING)
        )

    def wait(self) -> None:
        """Wait for all its work."""
        self.gpu.driver.call("cuStreamSynchronize", self.handle)


class Graph(_Resource):
    """Work that is captured once and then launched as a whole, without the host between kernels.

    `stream`: the stream in which the work is queued.
    `queue`: queues it.
    """

    def __init__(self, stream: Stream, queue: Callable[[], None]) -> None:
        driver, graph = stream.gpu.driver, ctypes.c_void_p()
        driver.call("cuStreamBeginCapture_v2", stream.handle, _RELAXED)
        try:
            queue()
        finally:
            driver.call("cuStreamEndCapture", stream.handle, ctypes.byref(graph))
        try:
            super().__init__(
                stream.gpu,
                "cuGraphExecDestroy",
                lambda to: driver.call("cuGraphInstantiateWithFlags", to, graph.value, 0),
            )
        finally:
            driver.call("cuGraphDestroy", graph.value)
        self._stream = stream.handle
        driver.call("cuGraphUpload", self.handle, self._stream)

    def start(self) -> None:
        """Queue the work in the same stream."""
        self.gpu.driver.call("cuGraphLaunch", self.handle, self._stream)


class Event(_Resource):
    """A point in a stream.

    `timed`: whether the device records the time at which it reaches the event.
    """

    def __init__(self, gpu: Gpu, timed: bool = False) -> None:
        flags = 0 if timed else _UNTIMED
        super().__init__(gpu, "cuEventDestroy_v2", lambda to: gpu.driver.call("cuEventCreate", to, flags))

    def record(self, stream: Any) -> None:
        """Record it after a stream's queued work."""
        self.gpu.driver.call("cuEventRecord", self.handle, stream)

    def hold(self, stream: Any) -> None:
        """Make a stream's further work wait for it."""
        self.gpu.driver.call("cuStreamWaitEvent", stream, self.handle, 0)

    def wait(self) -> None:
        """Wait until the device has reached it; return at once if it was not recorded."""
        self.gpu.driver.call("cuEventSynchronize", self.handle)

    def seconds_since(self, earlier: Event) -> float:
        """Wait for this event; return the seconds since an earlier timed event."""
        self.wait()
        milliseconds = self.gpu.driver.number(
            "cuEventElapsedTime", earlier.handle, self.handle, of=ctypes.c_float
        )
        return float(milliseconds) / 1e3
