"""Resources of a process on a GPU: memory, code, streams and events, released with their last reference."""

from __future__ import annotations

import contextlib
import ctypes
import os
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from hbtvm.errors import DeviceError
from hbtvm.runtime.cuda.driver import Gpu

_NON_BLOCKING = 1
_UNTIMED = 2
_THIS_THREAD = 1
"""Capture mode: what other threads do meanwhile is no error (``CU_STREAM_CAPTURE_MODE_THREAD_LOCAL``)."""


class _Resource:
    """A handle of the driver's, released when the object is collected."""

    def __init__(self, gpu: Gpu, handle: int, release: str) -> None:
        self.gpu, self.handle = gpu, handle
        self._finalizer = weakref.finalize(self, _release, gpu, handle, release, os.getpid())
        # At interpreter exit the driver may be unloaded already, and releases everything itself.
        self._finalizer.atexit = False


def _release(gpu: Gpu, handle: int, release: str, process: int) -> None:
    """Release a handle by the driver's function `release`, in the process that made it."""
    # A forked child must not release what its parent holds.
    if os.getpid() == process:
        # After a fault of the device, releasing fails, and is not needed.
        with contextlib.suppress(DeviceError), gpu.current():
            gpu.driver.call(release, handle)


class Memory(_Resource):
    """Device memory; `handle` is its address.

    Parameters
    ----------
    size
        Bytes.

    Raises
    ------
    CudaError
        With code `driver.OUT_OF_MEMORY`, if there is too little memory.
    """

    def __init__(self, gpu: Gpu, size: int) -> None:
        self.size = size
        super().__init__(gpu, gpu.allocate(size), "cuMemFree_v2")

    @classmethod
    def of(cls, gpu: Gpu, array: np.ndarray) -> Memory:
        """Return a copy of a contiguous array, complete when this returns."""
        memory = cls(gpu, array.nbytes)
        if array.nbytes:
            gpu.driver.call("cuMemcpyHtoDAsync_v2", memory.handle, array.ctypes.data, array.nbytes, None)
            gpu.driver.call("cuStreamSynchronize", None)
        return memory


class Pinned(_Resource):
    """Page-locked host memory, which a device copies from and to asynchronously, or reads and writes itself.

    Attributes
    ----------
    array
        uint8, shape (size,).
    """

    def __init__(self, gpu: Gpu, size: int) -> None:
        address = gpu.driver.number("cuMemHostAlloc", max(size, 1), 0, of=ctypes.c_void_p)
        super().__init__(gpu, address, "cuMemFreeHost")
        self.array: np.ndarray = np.ctypeslib.as_array((ctypes.c_ubyte * size).from_address(address))

    @property
    def device(self) -> int:
        """Its address for kernels on the device, which has to be current."""
        found = self.gpu.driver.number("cuMemHostGetDevicePointer_v2", self.handle, 0, of=ctypes.c_uint64)
        return int(found)


class Module(_Resource):
    """Machine code, loaded on a device.

    Raises
    ------
    CudaError
        If the driver cannot load it.
    """

    def __init__(self, gpu: Gpu, code: bytes) -> None:
        made = gpu.driver.number("cuModuleLoadData", code, of=ctypes.c_void_p)
        super().__init__(gpu, made, "cuModuleUnload")


class Stream(_Resource):
    """A stream that does not wait for the default stream."""

    def __init__(self, gpu: Gpu) -> None:
        made = gpu.driver.number("cuStreamCreate", _NON_BLOCKING, of=ctypes.c_void_p)
        super().__init__(gpu, made, "cuStreamDestroy_v2")

    def wait(self) -> None:
        """Wait until all its work is done."""
        self.gpu.driver.call("cuStreamSynchronize", self.handle)


class Graph(_Resource):
    """Work that is queued once, and then starts as a whole: between its kernels no host is waited for.

    Parameters
    ----------
    stream
        The stream in which the work is queued.
    queue
        Queues it.
    """

    def __init__(self, stream: Stream, queue: Callable[[], None]) -> None:
        driver, made = stream.gpu.driver, ctypes.c_void_p()
        driver.call("cuStreamBeginCapture_v2", stream.handle, _THIS_THREAD)
        try:
            queue()
        finally:
            driver.call("cuStreamEndCapture", stream.handle, ctypes.byref(made))
        try:
            handle = driver.number("cuGraphInstantiateWithFlags", made.value, 0, of=ctypes.c_void_p)
        finally:
            driver.call("cuGraphDestroy", made.value)
        super().__init__(stream.gpu, handle, "cuGraphExecDestroy")
        self._stream = stream.handle
        driver.call("cuGraphUpload", handle, self._stream)

    def start(self) -> None:
        """Queue the work again, in the same stream."""
        self.gpu.driver.call("cuGraphLaunch", self.handle, self._stream)


class Event(_Resource):
    """A point in a stream.

    Parameters
    ----------
    timed
        Whether the device records the time at which it reaches the event.
    """

    def __init__(self, gpu: Gpu, timed: bool = False) -> None:
        made = gpu.driver.number("cuEventCreate", 0 if timed else _UNTIMED, of=ctypes.c_void_p)
        super().__init__(gpu, made, "cuEventDestroy_v2")

    def record(self, stream: Any) -> None:
        """Record it at the end of a stream's queued work."""
        self.gpu.driver.call("cuEventRecord", self.handle, stream)

    def hold(self, stream: Any) -> None:
        """Make the further work of a stream wait for it."""
        self.gpu.driver.call("cuStreamWaitEvent", stream, self.handle, 0)

    def wait(self) -> None:
        """Wait until the device has reached it; an event that was not recorded is not waited for."""
        self.gpu.driver.call("cuEventSynchronize", self.handle)

    def seconds_since(self, earlier: Event) -> float:
        """Return the seconds between two timed events; waits until the device has reached this one."""
        self.wait()
        milliseconds = self.gpu.driver.number(
            "cuEventElapsedTime", earlier.handle, self.handle, of=ctypes.c_float
        )
        return float(milliseconds) / 1e3
