"""Direct calls of NVIDIA's driver: prediction needs no other part of CUDA.

`Driver` is the library with its functions, `Gpu` one of its devices. Addresses of device memory,
streams and events are plain integers. No function here waits for the device unless its docstring says so.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from hbtvm.errors import DeviceError

LIBRARY = "libcuda.so.1"  # the driver's library

_INT, _UINT, _SIZE, _POINTER, _TEXT = (
    ctypes.c_int,
    ctypes.c_uint,
    ctypes.c_size_t,
    ctypes.c_void_p,
    ctypes.c_char_p,
)
_ADDRESS = ctypes.c_uint64

_FUNCTIONS: dict[str, tuple[Any, ...]] = {
    "cuInit": (_UINT,),
    "cuDriverGetVersion": (_POINTER,),
    "cuGetErrorName": (_INT, _POINTER),
    "cuGetErrorString": (_INT, _POINTER),
    "cuDeviceGetCount": (_POINTER,),
    "cuDeviceGet": (_POINTER, _INT),
    "cuDeviceGetName": (_TEXT, _INT, _INT),
    "cuDeviceGetAttribute": (_POINTER, _INT, _INT),
    "cuDevicePrimaryCtxRetain": (_POINTER, _INT),
    "cuCtxPushCurrent_v2": (_POINTER,),
    "cuCtxPopCurrent_v2": (_POINTER,),
    "cuCtxGetCurrent": (_POINTER,),
    "cuModuleLoadData": (_POINTER, _TEXT),
    "cuModuleUnload": (_POINTER,),
    "cuModuleGetFunction": (_POINTER, _POINTER, _TEXT),
    "cuFuncSetAttribute": (_POINTER, _INT, _INT),
    "cuLaunchKernel": (_POINTER, *[_UINT] * 7, _POINTER, _POINTER, _POINTER),
    "cuLaunchCooperativeKernel": (_POINTER, *[_UINT] * 7, _POINTER, _POINTER),
    "cuOccupancyMaxActiveBlocksPerMultiprocessor": (_POINTER, _POINTER, _INT, _SIZE),
    "cuMemAlloc_v2": (_POINTER, _SIZE),
    "cuMemFree_v2": (_ADDRESS,),
    "cuMemGetInfo_v2": (_POINTER, _POINTER),
    "cuMemHostAlloc": (_POINTER, _SIZE, _UINT),
    "cuMemHostGetDevicePointer_v2": (_POINTER, _POINTER, _UINT),
    "cuMemFreeHost": (_POINTER,),
    "cuMemcpyHtoDAsync_v2": (_ADDRESS, _POINTER, _SIZE, _POINTER),
    "cuMemcpyDtoHAsync_v2": (_POINTER, _ADDRESS, _SIZE, _POINTER),
    "cuMemcpyDtoDAsync_v2": (_ADDRESS, _ADDRESS, _SIZE, _POINTER),
    "cuMemsetD8Async": (_ADDRESS, ctypes.c_ubyte, _SIZE, _POINTER),
    "cuStreamCreate": (_POINTER, _UINT),
    "cuStreamDestroy_v2": (_POINTER,),
    "cuStreamSynchronize": (_POINTER,),
    "cuStreamIsCapturing": (_POINTER, _POINTER),
    "cuStreamBeginCapture_v2": (_POINTER, _INT),
    "cuStreamEndCapture": (_POINTER, _POINTER),
    "cuGraphInstantiateWithFlags": (_POINTER, _POINTER, _ADDRESS),
    "cuGraphUpload": (_POINTER, _POINTER),
    "cuGraphLaunch": (_POINTER, _POINTER),
    "cuGraphExecDestroy": (_POINTER,),
    "cuGraphDestroy": (_POINTER,),
    "cuStreamWaitEvent": (_POINTER, _POINTER, _UINT),
    "cuEventCreate": (_POINTER, _UINT),
    "cuEventDestroy_v2": (_POINTER,),
    "cuEventRecord": (_POINTER, _POINTER),
    "cuEventSynchronize": (_POINTER,),
    "cuEventElapsedTime": (_POINTER, _POINTER, _POINTER),
}

_CLOCK, _MULTIPROCESSORS, _UNIFIED, _MAJOR, _MINOR, _SHARED = 13, 16, 41, 75, 76, 81
_DYNAMIC_SHARED, _CARVEOUT = 8, 9  # the driver's numbers of a device's and a function's attribute

_PCI_BUS, _PCI_SLOT, _PCI_DOMAIN = 33, 34, 50

OUT_OF_MEMORY, NOT_FOUND = 2, 500
_NOT_INITIALIZED, _NO_DEVICE, _NO_BINARY, _BAD_PTX, _UNKNOWN_PTX = 3, 100, 209, 218, 222


_LASTING = frozenset((214, 220, 226, 700, 702, 709, 710, *range(714, 720), 721, 810, 911, 999))
"""Errors after which the context is unusable: those for which ``cuda.h`` says that the process must be
relaunched, uncorrectable errors of memory and NVLink, and a destroyed context. Codes between them, such as
for peer access, leave it alive."""

_INVALID_CONTEXT, _CONTEXT_DESTROYED = 201, 709
_RESET = " If another library has reset the device (cudaDeviceReset), start this process anew."


class CudaError(DeviceError):
    """A function of the driver failed.

    `code`: the driver's error code (``CUresult``).
    """

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code

    @property
    def unreadable(self) -> bool:
        """Whether the driver cannot load a kernel's code."""
        return self.code in (200, _NO_BINARY, _BAD_PTX, _UNKNOWN_PTX)

    @property
    def lasting(self) -> bool:
        """Whether the error lost the context, so that this process can no longer use the device."""
        return self.code in _LASTING


class Driver:
    """The driver's functions, initialized.

    Raises `DeviceError` if this machine has no driver, or the driver has no device.

    `library`: name or path of its library.
    """

    def __init__(self, library: str) -> None:
        try:
            loaded = ctypes.CDLL(library)
            self._functions = {name: getattr(loaded, name) for name in _FUNCTIONS}
        except OSError:
            raise DeviceError(f"this machine has no NVIDIA driver ({library} was not found).") from None
        except AttributeError as error:
            lacking = str(error).rsplit(" ", 1)[-1]
            raise DeviceError(
                f"this machine's NVIDIA driver is too old: it has no {lacking}; a driver of CUDA 12 or later "
                "is needed."
            ) from None
        for name, arguments in _FUNCTIONS.items():
            self._functions[name].argtypes = arguments
            self._functions[name].restype = _INT
        code = self._functions["cuInit"](0)
        if code == _NO_DEVICE:
            raise DeviceError("this machine has an NVIDIA driver, but no GPU that it can use.")
        if code == _NOT_INITIALIZED:
            raise DeviceError(
                "a forked process can't use the GPU that its parent has used; start it by 'spawn' instead, "
                "or use the GPU in the child only."
            )
        if code:
            raise DeviceError(f"the NVIDIA driver can't be used: {self._message(code)}.")

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function.

        Raises `CudaError` if it fails.
        """
        code = self._functions[name](*arguments)
        if code:
            self.refuse(name, code)

    def refuse(self, name: str, code: int) -> NoReturn:
        """Raise the `CudaError` for an error code that a function returned."""
        advice = _RESET if code in (_INVALID_CONTEXT, _CONTEXT_DESTROYED) else ""
        raise CudaError(f"the GPU's driver refuses {name}: {self._message(code)}.{advice}", code)

    def function(self, name: str) -> Callable[..., int]:
        """Return a function; its result is an error code (see `refuse`) or 0."""
        function: Callable[..., int] = self._functions[name]
        return function

    def number(self, name: str, *arguments: Any, of: Any = _INT) -> Any:
        """Call a function and return the value, of type `of`, that it writes to its first argument."""
        answer = of()
        self.call(name, ctypes.byref(answer), *arguments)
        return answer.value

    def version(self) -> str:
        """Return the CUDA version that the driver supports, such as ``"13.0"``."""
        number = self.number("cuDriverGetVersion")
        return f"{number // 1000}.{number % 1000 // 10}"

    def devices(self) -> int:
        """Return the number of devices."""
        return int(self.number("cuDeviceGetCount"))

    def _message(self, code: int) -> str:
        """Return the driver's text and name of an error."""
        texts = []
        for name in ("cuGetErrorName", "cuGetErrorString"):
            text = _TEXT()
            self._functions[name](code, ctypes.byref(text))
            texts.append((text.value or b"?").decode(errors="replace"))
        return f"{texts[1]} ({texts[0]})"


class Gpu:
    """One device, with its primary context, which other libraries of this process share.

    Calls for the device must run within ``with gpu.current():``.

    `index`, `name`: its number, and its product name.
    `capability`: its compute capability, such as (9, 0).
    `multiprocessors`: number of its multiprocessors.
    `clock`: their highest clock, in Hz; 0 if the driver does not report it.
    `shared`: most bytes of shared memory of each.
    `unified`: whether pinned host memory has the same address on the device.
    `context`: handle of its primary context.
    """

    def __init__(self, driver: Driver, index: int) -> None:
        count = driver.devices()
        if not 0 <= index < count:
            raise DeviceError(f"there is no cuda:{index}; this machine has {count} GPU(s), cuda:0 the first.")
        self.driver, self.index = driver, index
        self._device = device = driver.number("cuDeviceGet", index)
        name = ctypes.create_string_buffer(256)
        driver.call("cuDeviceGetName", name, len(name), device)
        self.name = name.value.decode(errors="replace")
        attributes = (_MAJOR, _MINOR, _MULTIPROCESSORS)
        major, minor, cores = (
            driver.number("cuDeviceGetAttribute", attribute, device) for attribute in attributes
        )
        self.capability, self.multiprocessors = (major, minor), cores
        self.clock = 1000 * int(driver.number("cuDeviceGetAttribute", _CLOCK, device))
        self.shared = int(driver.number("cuDeviceGetAttribute", _SHARED, device))
        self.unified = bool(driver.number("cuDeviceGetAttribute", _UNIFIED, device))
        self.context = int(driver.number("cuDevicePrimaryCtxRetain", device, of=_POINTER))

    @property
    def place(self) -> str:
        """Its PCI bus address, such as ``"00000000:65:00.0"``."""
        attributes = (_PCI_DOMAIN, _PCI_BUS, _PCI_SLOT)
        domain, bus, slot = (
            self.driver.number("cuDeviceGetAttribute", attribute, self._device) for attribute in attributes
        )
        return f"{domain:08x}:{bus:02x}:{slot:02x}.0"

    @property
    def arch(self) -> str:
        """Its architecture, such as ``"sm_90"``."""
        return f"sm_{self.capability[0]}{self.capability[1]}"

    def is_current(self) -> bool:
        """Return whether it is this thread's current device."""
        context = _POINTER()
        self.driver.call("cuCtxGetCurrent", ctypes.byref(context))
        return context.value == self.context

    @contextlib.contextmanager
    def current(self) -> Iterator[None]:
        """Make it this thread's current device within the context; restore the former one after."""
        self.driver.call("cuCtxPushCurrent_v2", self.context)
        try:
            yield
        finally:
            self.driver.call("cuCtxPopCurrent_v2", ctypes.byref(_POINTER()))

    def free_memory(self) -> int:
        """Return the free bytes of its memory."""
        free, total = _SIZE(), _SIZE()
        self.driver.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value

    def allocate(self, to: Any, size: int) -> None:
        """Allocate `size` bytes of device memory and write their address to a place.

        Raises `CudaError` with code `OUT_OF_MEMORY` if there is too little memory.
        """
        try:
            self.driver.call("cuMemAlloc_v2", to, max(size, 1))
        except CudaError as error:
            if error.code != OUT_OF_MEMORY:
                raise
            free = self.free_memory() / 2**20
            raise CudaError(
                f"cuda:{self.index} ({self.name}) is out of memory: {size / 2**20:,.1f} MiB are needed, "
                f"{free:,.1f} MiB are free.",
                OUT_OF_MEMORY,
            ) from None

    def function(self, module: int, name: str, shared: int = 0, carveout: int | None = None) -> int:
        """Return a kernel of a loaded module.

        `shared`: most bytes of its dynamic shared memory.
        `carveout`: preferred bytes of shared memory of a multiprocessor; None leaves them to the driver.
        """
        function = int(self.driver.number("cuModuleGetFunction", module, name.encode(), of=_POINTER))
        if shared:
            self.driver.call("cuFuncSetAttribute", function, _DYNAMIC_SHARED, shared)
        if carveout is not None:
            # The driver rounds percentages up to the next size, so they are rounded down.
            percent = min(100, 100 * carveout // self.shared)
            self.driver.call("cuFuncSetAttribute", function, _CARVEOUT, percent)
        return function


_known: dict[tuple[int, str, int], Gpu] = {}
_lock = threading.Lock()


def gpu(index: int = 0) -> Gpu:
    """Return a device of this machine, the same object in every call.

    Raises `DeviceError` if there is no such device, no driver, or one that is too old.
    """
    # The process is in the key, because a forked child cannot use its parent's context.
    key = os.getpid(), LIBRARY, index
    with _lock:
        if key not in _known:
            _known[key] = Gpu(_driver(key[0], LIBRARY), index)
        return _known[key]


@functools.cache
def _driver(process: int, library: str) -> Driver:
    """Return the driver; one object per process, since a forked child has to initialize it anew."""
    return Driver(library)
