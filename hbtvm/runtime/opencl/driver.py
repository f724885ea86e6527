"""Direct calls of OpenCL 1.2: prediction needs a device's driver and OpenCL's loader.

`Library` is the loader with its functions, `Device` one of the drivers' devices with a context. Handles are
plain integers.
"""

from __future__ import annotations

import ctypes
import functools
import os
import re
import threading
from typing import Any

from hbtvm.errors import DeviceError

LIBRARY = "libOpenCL.so.1"

_INT, _UINT, _SIZE, _POINTER, _TEXT = (
    ctypes.c_int32,
    ctypes.c_uint32,
    ctypes.c_size_t,
    ctypes.c_void_p,
    ctypes.c_char_p,
)
_FLAGS = ctypes.c_uint64
_ENQUEUED = (_UINT, _POINTER, _POINTER)  # events to wait for, and the command's event

_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "clGetPlatformIDs": (_UINT, _POINTER, _POINTER),
    "clGetDeviceIDs": (_POINTER, _FLAGS, _UINT, _POINTER, _POINTER),
    "clGetDeviceInfo": (_POINTER, _UINT, _SIZE, _POINTER, _POINTER),
    "clBuildProgram": (_POINTER, _UINT, _POINTER, _TEXT, _POINTER, _POINTER),
    "clGetProgramBuildInfo": (_POINTER, _POINTER, _UINT, _SIZE, _POINTER, _POINTER),
    "clGetKernelWorkGroupInfo": (_POINTER, _POINTER, _UINT, _SIZE, _POINTER, _POINTER),
    "clSetKernelArg": (_POINTER, _UINT, _SIZE, _POINTER),
    "clEnqueueNDRangeKernel": (_POINTER, _POINTER, _UINT, _POINTER, _POINTER, _POINTER, *_ENQUEUED),
    "clEnqueueWriteBuffer": (_POINTER, _POINTER, _UINT, _SIZE, _SIZE, _POINTER, *_ENQUEUED),
    "clEnqueueReadBuffer": (_POINTER, _POINTER, _UINT, _SIZE, _SIZE, _POINTER, *_ENQUEUED),
    "clEnqueueCopyBuffer": (_POINTER, _POINTER, _POINTER, _SIZE, _SIZE, _SIZE, *_ENQUEUED),
    "clEnqueueFillBuffer": (_POINTER, _POINTER, _POINTER, _SIZE, _SIZE, _SIZE, *_ENQUEUED),
    "clWaitForEvents": (_UINT, _POINTER),
    "clFlush": (_POINTER,),
    "clFinish": (_POINTER,),
    "clGetEventProfilingInfo": (_POINTER, _UINT, _SIZE, _POINTER, _POINTER),
    "clReleaseCommandQueue": (_POINTER,),
    "clReleaseMemObject": (_POINTER,),
    "clReleaseProgram": (_POINTER,),
    "clReleaseKernel": (_POINTER,),
    "clReleaseEvent": (_POINTER,),
}
"""Functions that return an error code, and their arguments."""

_MAKERS: dict[str, tuple[Any, ...]] = {
    "clCreateContext": (_POINTER, _UINT, _POINTER, _POINTER, _POINTER),
    "clCreateCommandQueue": (_POINTER, _POINTER, _FLAGS),
    "clCreateBuffer": (_POINTER, _FLAGS, _SIZE, _POINTER),
    "clCreateSubBuffer": (_POINTER, _FLAGS, _UINT, _POINTER),
    "clCreateProgramWithSource": (_POINTER, _UINT, _POINTER, _POINTER),
    "clCreateKernel": (_POINTER, _TEXT),
}
"""Functions that return a handle, and write an error code to one more argument."""

_ALL_DEVICES, _GPU = 0xFFFFFFFF, 1 << 2
_TYPE, _UNITS, _MOST_THREADS, _LOCAL_BYTES = 0x1000, 0x1002, 0x1004, 0x1023
_ALIGNMENT, _MOST_ALLOCATED, _NAME, _EXTENSIONS, _VERSION = 0x1019, 0x1010, 0x102B, 0x1030, 0x102F
_BUILD_LOG = 0x1183
_NO_PLATFORM, _NO_DEVICE, BUILD_FAILURE = -1001, -1, -11

_NAMES = {
    -1: "CL_DEVICE_NOT_FOUND",
    -2: "CL_DEVICE_NOT_AVAILABLE",
    -3: "CL_COMPILER_NOT_AVAILABLE",
    -4: "CL_MEM_OBJECT_ALLOCATION_FAILURE",
    -5: "CL_OUT_OF_RESOURCES",
    -6: "CL_OUT_OF_HOST_MEMORY",
    -14: "CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST",
    -11: "CL_BUILD_PROGRAM_FAILURE",
    -30: "CL_INVALID_VALUE",
    -34: "CL_INVALID_CONTEXT",
    -36: "CL_INVALID_COMMAND_QUEUE",
    -38: "CL_INVALID_MEM_OBJECT",
    -46: "CL_INVALID_KERNEL_NAME",
    -50: "CL_INVALID_ARG_VALUE",
    -52: "CL_INVALID_KERNEL_ARGS",
    -54: "CL_INVALID_WORK_GROUP_SIZE",
    -55: "CL_INVALID_WORK_ITEM_SIZE",
    -61: "CL_INVALID_BUFFER_SIZE",
}
_OUT_OF_MEMORY = (-4, -5, -6, -61)
_LASTING = (-5, -14, -34, -36)  # NVIDIA's driver says -5 of kernels that fault


class OpenclError(DeviceError):
    """A function of OpenCL failed.

    `code`: OpenCL's error code.
    """

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code

    @property
    def out_of_memory(self) -> bool:
        """Whether the device or its driver had too little memory."""
        return self.code in _OUT_OF_MEMORY

    @property
    def lasting(self) -> bool:
        """Whether the context may be lost, so that this process can no longer use the device."""
        return self.code in _LASTING


class Library:
    """OpenCL's functions.

    Raises `DeviceError` if this machine has no OpenCL, or one older than 1.2.

    `library`: name or path of the loader.
    """

    def __init__(self, library: str) -> None:
        try:
            loaded = ctypes.CDLL(library)
            self._functions = {name: getattr(loaded, name) for name in (*_FUNCTIONS, *_MAKERS)}
        except OSError:
            raise DeviceError(
                f"this machine has no OpenCL ({library} was not found); install the driver of its GPU, or "
                "pocl-opencl-icd for its CPU."
            ) from None
        except AttributeError as error:
            lacking = str(error).rsplit(" ", 1)[-1]
            raise DeviceError(
                f"this machine's OpenCL is too old: it has no {lacking}; 1.2 is needed."
            ) from None
        for name, arguments in _FUNCTIONS.items():
            self._functions[name].argtypes, self._functions[name].restype = arguments, _INT
        for name, arguments in _MAKERS.items():
            self._functions[name].argtypes, self._functions[name].restype = (*arguments, _POINTER), _POINTER

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function.

        Raises `OpenclError` if it fails.
        """
        self._check(name, self._functions[name](*arguments))

    def make(self, name: str, *arguments: Any) -> int:
        """Call a function and return the handle that it makes.

        Raises `OpenclError` if it fails.
        """
        code = _INT()
        handle = self._functions[name](*arguments, ctypes.byref(code))
        self._check(name, code.value)
        return int(handle or 0)

    def _check(self, name: str, code: int) -> None:
        if code:
            raise OpenclError(f"OpenCL refuses {name}: {_NAMES.get(code, 'error')} ({code}).", code)

    def info(self, name: str, *arguments: Any) -> bytes:
        """Return the value that a function such as ``clGetDeviceInfo`` writes."""
        size = _SIZE()
        self.call(name, *arguments, 0, None, ctypes.byref(size))
        value = ctypes.create_string_buffer(max(size.value, 1))
        self.call(name, *arguments, size.value, value, None)
        return value.raw[: size.value]

    def devices(self) -> list[int]:
        """Return the devices of all drivers, GPUs first."""
        found = [device for platform in self._list("clGetPlatformIDs") for device in self._of(platform)]
        return sorted(found, key=lambda device: not self.number(device, _TYPE) & _GPU)

    def _of(self, platform: int) -> list[int]:
        return self._list("clGetDeviceIDs", platform, _ALL_DEVICES)

    def _list(self, name: str, *arguments: Any) -> list[int]:
        count = _UINT()
        try:
            self.call(name, *arguments, 0, None, ctypes.byref(count))
            handles = (_POINTER * count.value)()
            if count.value:
                self.call(name, *arguments, count.value, handles, None)
        except OpenclError as error:
            if error.code not in (_NO_PLATFORM, _NO_DEVICE):
                raise
            return []
        return [int(handle or 0) for handle in handles]

    def number(self, device: int, what: int) -> int:
        """Return a number that describes a device."""
        return int.from_bytes(self.info("clGetDeviceInfo", device, what), "little")

    def text(self, device: int, what: int) -> str:
        """Return a text that describes a device."""
        value = self.info("clGetDeviceInfo", device, what).rstrip(b"\0")
        return " ".join(value.decode(errors="replace").split())


class Device:
    """One device, with a context of this process.

    `index`, `name`, `arch`: its number, its product name, and the latter as in targets.
    `handle`, `context`: its handles.
    `units`: number of its compute units.
    `most_threads`, `local_bytes`: most threads (work-items) of a block (work-group), and bytes of its memory.
    `doubles`: whether it computes in float64.
    `most_allocated`: most bytes of a buffer.
    `alignment`: parts of buffers begin at a multiple of this many bytes.
    """

    def __init__(self, library: Library, index: int) -> None:
        devices = library.devices()
        if not devices:
            raise DeviceError("this machine has OpenCL, but no driver with a device.")
        if not 0 <= index < len(devices):
            raise DeviceError(
                f"there is no opencl:{index}; this machine has {len(devices)} OpenCL device(s), opencl:0 the "
                "first."
            )
        self.library, self.index, self.handle = library, index, devices[index]
        self.name = library.text(self.handle, _NAME)
        self.arch = re.sub(r"[^a-z0-9.]+", "-", self.name.lower()).strip("-")[:60] or "unnamed"
        self.version = library.text(self.handle, _VERSION)
        numbers = (_UNITS, _MOST_THREADS, _LOCAL_BYTES, _MOST_ALLOCATED)
        self.units, self.most_threads, self.local_bytes, self.most_allocated = (
            library.number(self.handle, what) for what in numbers
        )
        self.alignment = library.number(self.handle, _ALIGNMENT) // 8
        self.doubles = "cl_khr_fp64" in library.text(self.handle, _EXTENSIONS).split()

    @functools.cached_property
    def context(self) -> int:
        """The handle of its context in this process."""
        devices = (_POINTER * 1)(self.handle)
        return self.library.make("clCreateContext", None, 1, devices, None, None)

    @property
    def place(self) -> str:
        """Its number and name, for messages."""
        return f"opencl:{self.index} ({self.name})"

    def build_log(self, program: int) -> str:
        """Return the compiler's messages about a program."""
        log = self.library.info("clGetProgramBuildInfo", program, self.handle, _BUILD_LOG)
        return log.rstrip(b"\0").decode(errors="replace")


_known: dict[tuple[int, str, int], Device] = {}
_lock = threading.Lock()


def device(index: int = 0) -> Device:
    """Return a device of this machine, the same object in every call.

    Raises `DeviceError` if there is no such device, no OpenCL, or if this process was forked by one that used
    it.
    """
    key = os.getpid(), LIBRARY, index
    with _lock:
        if any(process != key[0] for process, _, _ in _known):  # some drivers hang
            raise DeviceError(
                "a forked process can't use OpenCL that its parent has used; start it by 'spawn', or use "
                "OpenCL in the child only."
            )
        if key not in _known:
            _known[key] = Device(_library(LIBRARY), index)
        return _known[key]


@functools.cache
def _library(library: str) -> Library:
    return Library(library)
