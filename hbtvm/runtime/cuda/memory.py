"""What a process holds on a GPU: memory, streams and events, given back when nobody has them any more."""

from __future__ import annotations

import contextlib
import ctypes
import os
import weakref
from typing import Any

import numpy as np

from hbtvm.errors import DeviceError
from hbtvm.runtime.cuda.driver import Gpu

_NON_BLOCKING = 1
_UNTIMED = 2


class _Held:
    """Something of the driver's."""

    def __init__(self, gpu: Gpu, handle: int, release: str) -> None:
        self.gpu, self.handle = gpu, handle
        self._end = weakref.finalize(self, _released, gpu, handle, release, os.getpid())
        # When the interpreter ends, the driver may have ended before it, and gives all back itself.
        self._end.atexit = False


def _released(gpu: Gpu, handle: int, release: str, process: int) -> None:
    # A forked child has no right to what its parent holds.
    if os.getpid() == process:
        # After a fault of the device nothing can be given back any more, or need be.
        with contextlib.suppress(DeviceError), gpu.current():
            gpu.driver.call(release, handle)


class Memory(_Held):
    """Device memory; `handle` is its address.

    Parameters
    ----------
    size
        Bytes.

    Raises
    ------
    CudaError
        With code `driver.OUT_OF_MEMORY`, if there is not so much.
    """

    def __init__(self, gpu: Gpu, size: int) -> None:
        self.size = size
        super().__init__(gpu, gpu.allocate(size), "cuMemFree_v2")

    @classmethod
    def of(cls, gpu: Gpu, array: np.ndarray) -> Memory:
        """A copy of a contiguous array, complete when this returns."""
        memory = cls(gpu, array.nbytes)
        if array.nbytes:
            gpu.driver.call("cuMemcpyHtoDAsync_v2", memory.handle, array.ctypes.data, array.nbytes, None)
            gpu.driver.call("cuStreamSynchronize", None)
        return memory


class Pinned(_Held):
    """Host memory that a device copies from and to by itself, while the host does something else.

    Attributes
    ----------
    array
        uint8, shape (size,).
    """

    def __init__(self, gpu: Gpu, size: int) -> None:
        address = gpu.driver.number("cuMemHostAlloc", max(size, 1), 0, of=ctypes.c_void_p)
        super().__init__(gpu, address, "cuMemFreeHost")
        self.array: np.ndarray = np.ctypeslib.as_array((ctypes.c_ubyte * size).from_address(address))


class Module(_Held):
    """Machine code on a device.

    Raises
    ------
    CudaError
        If the driver can't make use of it.
    """

    def __init__(self, gpu: Gpu, code: bytes) -> None:
        made = gpu.driver.number("cuModuleLoadData", code, of=ctypes.c_void_p)
        super().__init__(gpu, made, "cuModuleUnload")


class Stream(_Held):
    """A queue of work for a device, apart from all other queues."""

    def __init__(self, gpu: Gpu) -> None:
        made = gpu.driver.number("cuStreamCreate", _NON_BLOCKING, of=ctypes.c_void_p)
        super().__init__(gpu, made, "cuStreamDestroy_v2")

    def wait(self) -> None:
        """Wait until all its work is done."""
        self.gpu.driver.call("cuStreamSynchronize", self.handle)


class Event(_Held):
    """A mark in a stream.

    Parameters
    ----------
    timed
        Whether the device notes the time when it comes to it.
    """

    def __init__(self, gpu: Gpu, timed: bool = False) -> None:
        made = gpu.driver.number("cuEventCreate", 0 if timed else _UNTIMED, of=ctypes.c_void_p)
        super().__init__(gpu, made, "cuEventDestroy_v2")

    def record(self, stream: Any) -> None:
        """Put it at a stream's end."""
        self.gpu.driver.call("cuEventRecord", self.handle, stream)

    def hold(self, stream: Any) -> None:
        """Let a stream's further work wait for it."""
        self.gpu.driver.call("cuStreamWaitEvent", stream, self.handle, 0)

    def seconds_since(self, earlier: Event) -> float:
        """Seconds between two timed events, once the device has come to this one; waits for that."""
        self.gpu.driver.call("cuEventSynchronize", self.handle)
        milliseconds = self.gpu.driver.number(
            "cuEventElapsedTime", earlier.handle, self.handle, of=ctypes.c_float
        )
        return float(milliseconds) / 1e3
