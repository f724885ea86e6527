"""Resources of a process on an OpenCL device, released with their last reference."""

from __future__ import annotations

import contextlib
import ctypes
import os
import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np

from hbtvm.errors import DeviceError, PackageError
from hbtvm.runtime.opencl.driver import BUILD_FAILURE, Device, OpenclError
from hbtvm.runtime.opencl.pairs import PAIRS

_PROFILED, _READ_WRITE, _NOW = 2, 1, 1
_REGION = 0x1220
_STARTED, _ENDED = 0x1282, 0x1283
_LOCAL_BYTES = 0x11B2
_OPTIONS = "-cl-std=CL1.2"


class _Resource:
    """A handle, released when the object is collected.

    `release`: the function that releases it.
    """

    def __init__(self, device: Device, handle: int, release: str) -> None:
        self.device, self.handle = device, handle
        finalizer = weakref.finalize(self, _release, device, handle, release, os.getpid())
        finalizer.atexit = False  # drivers may be unloaded already


def _release(device: Device, handle: int, release: str, process: int) -> None:
    # A forked child must not release its parent's handle.
    if os.getpid() == process:
        with contextlib.suppress(DeviceError):
            device.library.call(release, handle)


class Buffer(_Resource):
    """A device's memory.

    `size`: bytes.
    Raises `OpenclError` if there is too little memory.
    """

    def __init__(self, device: Device, size: int) -> None:
        self.size = max(size, 1)
        try:
            handle = device.library.make("clCreateBuffer", device.context, _READ_WRITE, self.size, None)
        except OpenclError as error:
            if not error.out_of_memory:
                raise
            needed = f"{size / 2**20:,.1f} MiB are needed"
            raise OpenclError(f"{device.place} is out of memory: {needed}.", error.code) from None
        super().__init__(device, handle, "clReleaseMemObject")


class SubBuffer(Buffer):
    """A part of a buffer, which stays allocated as long as this.

    `start`, `size`: its first byte, a multiple of the device's `alignment`, and its bytes.
    """

    def __init__(self, whole: Buffer, start: int, size: int) -> None:
        device, region = whole.device, (ctypes.c_size_t * 2)(start, size)
        make = whole.handle, _READ_WRITE, _REGION, region
        self.size = size
        handle = device.library.make("clCreateSubBuffer", *make)
        _Resource.__init__(self, device, handle, "clReleaseMemObject")


class Queue(_Resource):
    """An in-order queue of commands; arrays must stay allocated and unchanged until they have run."""

    def __init__(self, device: Device) -> None:
        handle = device.library.make("clCreateCommandQueue", device.context, device.handle, _PROFILED)
        super().__init__(device, handle, "clReleaseCommandQueue")

    def write(self, buffer: Buffer, array: np.ndarray) -> None:
        """Queue a copy of a C-contiguous array to the device."""
        if array.nbytes:
            at = array.ctypes.data
            self._call("clEnqueueWriteBuffer", buffer.handle, 0, 0, array.nbytes, at, 0, None, None)

    def read(self, array: np.ndarray, buffer: Buffer) -> None:
        """Queue a copy to a C-contiguous array."""
        at = array.ctypes.data
        self._call("clEnqueueReadBuffer", buffer.handle, 0, 0, array.nbytes, at, 0, None, None)

    def copy(self, to: Buffer, start: int, source: Buffer, size: int) -> None:
        """Queue a copy of a buffer's first bytes to another place on the device."""
        self._call("clEnqueueCopyBuffer", source.handle, to.handle, 0, start, size, 0, None, None)

    def fill(self, buffer: Buffer, byte: int) -> None:
        """Queue the setting of all of a buffer's bytes."""
        value = ctypes.c_uint8(byte)
        fill = (buffer.handle, ctypes.byref(value), 1, 0, buffer.size)
        self._call("clEnqueueFillBuffer", *fill, 0, None, None)

    def start(
        self, kernel: Kernel, sizes: ctypes.Array[Any], block: ctypes.Array[Any] | None, timed: bool = False
    ) -> Event | None:
        """Queue a kernel; return its event if it is timed.

        `sizes`: its threads along each axis.
        `block`: threads of a block along each axis; None leaves them to the driver.
        """
        event = ctypes.c_void_p()
        to = ctypes.byref(event) if timed else None
        self._call("clEnqueueNDRangeKernel", kernel.handle, len(sizes), None, sizes, block, 0, None, to)
        return Event(self.device, int(event.value or 0), "clReleaseEvent") if timed else None

    def flush(self) -> None:
        """Begin the queued work."""
        self._call("clFlush")

    def wait(self) -> None:
        """Wait for all queued work."""
        self._call("clFinish")

    def _call(self, name: str, *arguments: Any) -> None:
        self.device.library.call(name, self.handle, *arguments)


class Event(_Resource):
    """A started kernel, and the times of its start and end by the device's clock."""

    def seconds_since(self, earlier: Event) -> float:
        """Wait for the kernel's end; return the seconds since the start of an earlier one."""
        self.device.library.call("clWaitForEvents", 1, (ctypes.c_void_p * 1)(self.handle))
        return (self._time(_ENDED) - earlier._time(_STARTED)) / 1e9

    def _time(self, what: int) -> int:
        value = self.device.library.info("clGetEventProfilingInfo", self.handle, what)
        return int.from_bytes(value, "little")


class Program(_Resource):
    """Source, compiled by a device's driver.

    Raises `PackageError` if the driver can't compile it, with the first error of its build log.
    """

    def __init__(self, device: Device, source: bytes) -> None:
        texts = (ctypes.c_char_p * 1)(source)
        arguments = (device.context, 1, texts, None)
        super().__init__(
            device, device.library.make("clCreateProgramWithSource", *arguments), "clReleaseProgram"
        )
        devices = (ctypes.c_void_p * 1)(device.handle)
        try:
            options = _OPTIONS if device.doubles else f"{_OPTIONS} -D {PAIRS}"
            device.library.call("clBuildProgram", self.handle, 1, devices, options.encode(), None, None)
        except OpenclError as error:
            if error.code != BUILD_FAILURE:
                raise
            lines = device.build_log(self.handle).splitlines()
            first = [line.strip() for line in lines if "error" in line] or [line for line in lines if line]
            reason = first[0] if first else "its build log is empty"
            raise PackageError(f"{device.place} can't compile a kernel: {reason:.300}") from None


class Kernel(_Resource):
    """A program's kernel with its arguments, for one thread at a time.

    Raises `PackageError` if the device has too little local memory for a block.

    `values`: its arguments, as of C.
    """

    def __init__(self, program: Program, name: str, values: Sequence[Any]) -> None:
        device = program.device
        try:
            handle = device.library.make("clCreateKernel", program.handle, name.encode())
        except OpenclError as error:
            raise PackageError(f"{device.place} finds no kernel {name!r} in a package: {error}") from None
        super().__init__(device, handle, "clReleaseKernel")
        needed = device.library.info("clGetKernelWorkGroupInfo", handle, device.handle, _LOCAL_BYTES)
        local = int.from_bytes(needed, "little")
        if local > device.local_bytes:
            raise PackageError(
                f"a kernel takes {local:,} bytes of local memory for a block, and {device.place} has "
                f"{device.local_bytes:,}; compile the model for this device."
            )
        self._values = values
        for at, value in enumerate(values):
            self.set(at, value.value)

    def set(self, at: int, number: float) -> None:
        """Set an argument for the starts from now on."""
        value = self._values[at]
        value.value = number
        self.device.library.call("clSetKernelArg", self.handle, at, ctypes.sizeof(value), ctypes.byref(value))
