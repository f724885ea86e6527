"""GPU packages that run on a CPU: kernels from their unchanged CUDA source, behind an emulated driver.

The runtime for GPUs runs as on a machine with one, down to the calls of the driver's functions.
"""

from __future__ import annotations

import ctypes
import functools
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import hbtvm
from hbtvm.compiler.building import cuda as cuda_build
from hbtvm.compiler.building import cuda_toolkit
from hbtvm.runtime.cuda import driver
from hbtvm.runtime.package.file import Package
from tests.cuda_kernels import KERNEL, compiled, kernel_text
from tests.runtime_models import trained

NO_COMPILER = None if shutil.which("g++") else "there is no g++ on this machine"
DEVICES, CAPABILITY, MEMORY, FAILURE, VERSION, UNREADABLE, NOT_READY, SECOND, RESIDENT, PINNABLE, UNIFIED = (
    range(11)
)
USED, PIECES, LAUNCHES, DEPTH, ON_FIRST, ON_SECOND, PINNED, CARVEOUT = range(8)
SM90 = {"kind": "cuda", "arch": "sm_90"}
_ARRAY = re.compile(r"^ *(double|float|int|u?int64_t|signed char|bool) \w+\[(\d+)\];", re.MULTILINE)
"""A thread's array: its type and size."""

_UNBOUNDED = 256
"""Threads of a block for which a multiprocessor has registers whatever a thread takes (255)."""

_folder = tempfile.TemporaryDirectory(prefix="hbtvm-tests-")


def _compiled(text: str, name: str, *options: str) -> str:
    return compiled(text, str(Path(_folder.name, name)), *options)


@functools.cache
def driver_library() -> str:
    """Return the path of the emulated driver's library, compiled once."""
    return _compiled(Path(__file__).with_name("fake_driver.cpp").read_text(), "libfakecuda.so", "-ldl")


@functools.cache
def machine_code(source: str) -> bytes:
    """Return the emulation of a module of machine code: the path of a library of emulated kernels."""
    text = kernel_text(source)
    kernels = list(re.finditer(KERNEL, text))
    ends = [kernel.start() for kernel in kernels[1:]] + [len(text)]
    for kernel, end in zip(kernels, ends, strict=True):
        threads, name, signature = kernel.groups()
        local = " + ".join(
            f"sizeof({kind}) * {size}" for kind, size in _ARRAY.findall(text[kernel.start() : end])
        )
        given = [re.sub(r"\b(__restrict__|const)\b|\w+$", "", one).strip() for one in signature.split(",")]
        passed = ", ".join(f"*({one}*)given_{name}[{at}]" for at, one in enumerate(given))
        sizes = ", ".join(f"sizeof({one})" for one in given)
        text += f"""
            static void **given_{name};
            static void one_{name}() {{ {name}({passed}); }}
            extern "C" size_t sizes_{name}[] = {{ {sizes}, 0 }};
            extern "C" unsigned limits_{name}[] = {{ fixed_{name}, {threads or _UNBOUNDED}, {local or 0} }};
            extern "C" void launch_{name}(void **given, const unsigned *sizes) {{
              emulation::size_shared(fixed_{name}, sizes[6]);
              given_{name} = given;
              if (sizes[7]) return emulation::blocks(sizes[0], sizes[3], sizes[4], sizes[7] > 1, one_{name});
              for (blockIdx.z = 0; blockIdx.z < sizes[2]; ++blockIdx.z)
              for (blockIdx.y = 0; blockIdx.y < sizes[1]; ++blockIdx.y)
              for (blockIdx.x = 0; blockIdx.x < sizes[0]; ++blockIdx.x)
                emulation::block(sizes[3], sizes[4], false, one_{name});
            }}
        """
    return b"EMULATED:" + _compiled(text, f"kernel{len(text)}-{hash(text) % 10**9}.so").encode()


def elsewhere(name: str, *arguments: Any) -> None:
    """Call a function of the driver as another library does, which makes a context current first."""
    library = ctypes.CDLL(driver_library())
    assert library.cuCtxPushCurrent_v2(ctypes.c_void_p(1)) == 0
    assert library[name](*arguments) == 0
    assert library.cuCtxPopCurrent_v2(ctypes.byref(ctypes.c_void_p())) == 0


class Machine:
    """Settings and counters of the emulated driver."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(driver_library())
        self._library.fake_get.restype = ctypes.c_long

    def set(self, which: int, value: int) -> None:
        self._library.fake_set(which, ctypes.c_long(value))

    def get(self, which: int) -> int:
        return int(self._library.fake_get(which))

    def stream(self) -> int:
        """Return a new stream that the runtime under test did not create."""
        made = ctypes.c_void_p()
        elsewhere("cuStreamCreate", ctypes.byref(made), 1)
        return int(made.value or 0)


@contextmanager
def machine() -> Iterator[Machine]:
    """Return a context within which the machine has two emulated GPUs, and kernels compile for the CPU."""
    found = Machine()
    settings = {
        DEVICES: 2,
        CAPABILITY: 90,
        MEMORY: 1 << 30,
        FAILURE: 0,
        VERSION: 13000,
        UNREADABLE: 0,
        NOT_READY: 0,
        SECOND: 0,
        RESIDENT: 0,
        PINNABLE: 1 << 30,
        UNIFIED: 1,
    }
    for which, value in settings.items():
        found.set(which, value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "LIBRARY", driver_library())
        patch.setattr(driver, "_known", {})
        driver._driver.cache_clear()
        patch.setattr(cuda_build, "machine_code", lambda source, *_, **__: (machine_code(source), ""))
        patch.setattr(cuda_build, "check_toolkit", lambda target: None)
        patch.setattr(cuda_toolkit, "toolkit_version", lambda: "13.0")
        yield found
    driver._driver.cache_clear()


_packages: dict[str, Package] = {}


def package(name: str) -> Package:
    """Return a package of a model of `models.ZOO`, for one row and for many; within `machine` only."""
    if name not in _packages:
        _packages[name] = hbtvm.compile(trained(name)[1], target=SM90, batch_sizes=(1, 5000)).package
    return _packages[name]


def whole_tiles_package(name: str) -> Package:
    """As `package`, as releases compiled up to package format 13: kernels of whole tiles, without bounds."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuda_build, "with_bounds", lambda module, parts: module)
        return hbtvm.compile(trained(name)[1], target=SM90, batch_sizes=(1, 5000)).package


def _relabelled(capsule: Any, device: int, kind: int = 2) -> Any:
    """Return a DLPack capsule of host memory relabelled as a GPU's; with `kind` 1, as the host's."""
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    address = get(capsule, b"dltensor")
    ctypes.c_int32.from_address(address + 8).value = kind
    ctypes.c_int32.from_address(address + 12).value = device
    return capsule


class Device:
    """As `cupy.cuda.Device`."""

    def __init__(self, number: int) -> None:
        self.id = number

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: Any) -> None:
        pass


class _Pointer(NamedTuple):
    ptr: int
    device_id: int


_Work = ctypes.CFUNCTYPE(None)
_queued: list[Any] = []


class Array(np.lib.mixins.NDArrayOperatorsMixin):
    """As `cupy.ndarray`, in memory of the host: results are there once their stream was waited for."""

    __module__ = "cupy"

    def __init__(self, array: np.ndarray, device: int = 0) -> None:
        self.array, self.device = array, Device(device)
        _queued.append(array)  # CuPy's pool reuses memory in its stream's order only

    @property
    def data(self) -> Any:
        """As `cupy.cuda.MemoryPointer`."""
        return _Pointer(self.array.ctypes.data, self.device.id)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.array, name)

    def __len__(self) -> int:
        return len(self.array)

    def __bool__(self) -> bool:
        return bool(Cupy.asnumpy(self))

    def __getitem__(self, key: Any) -> Array:
        if isinstance(key, Array):
            return later(lambda: self.array[key.array])
        return Array(self.array[key], self.device.id)

    def __setitem__(self, key: Any, value: Array) -> None:
        later(lambda: value.array, self.array[key])

    def __array_ufunc__(self, function: Any, method: str, *given: Any, out: Any = None) -> Array:
        assert method == "__call__"
        arrays = lambda: [one.array if isinstance(one, Array) else one for one in given]  # noqa: E731
        return later(lambda: function(*arrays()), None if out is None else out[0].array)

    def astype(self, dtype: Any, copy: bool = True) -> Array:
        same = not copy and self.array.dtype == dtype
        return self if same else later(lambda: self.array.astype(dtype))

    def max(self, **how: Any) -> Array:
        return later(lambda: self.array.max(**how))

    def sum(self, **how: Any) -> Array:
        return later(lambda: self.array.sum(**how))

    def argmax(self, **how: Any) -> Array:
        return later(lambda: self.array.argmax(**how))

    def any(self) -> Array:
        return later(lambda: np.asarray(self.array.any()))

    def __dlpack__(self, **_: Any) -> Any:
        return _relabelled(self.array.__dlpack__(), self.device.id)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.device.id


def later(work: Callable[[], np.ndarray], into: np.ndarray | None = None) -> Array:
    """Queue work in CuPy's current stream; return its result, which must not be read before it is done."""
    with np.errstate(all="ignore"):
        made = np.array(work())  # of the inputs as they are now: for shape and type only
    result = (
        np.full(made.shape, np.nan if made.dtype.kind == "f" else -1, made.dtype) if into is None else into
    )

    def done() -> None:
        with np.errstate(all="ignore"):
            result[...] = work()

    call = _Work(done)
    _queued.append(call)  # a reference, since the driver calls it later
    ctypes.CDLL(driver_library()).fake_queue(ctypes.c_void_p(Cupy.cuda.stream), call)
    return Array(result)


class _Stream:
    """As `cupy.cuda.Stream`."""

    def __init__(self, non_blocking: bool = False) -> None:
        self.ptr = Machine().stream()

    def __enter__(self) -> None:
        self._before, Cupy.cuda.stream = Cupy.cuda.stream, self.ptr

    def __exit__(self, *_: Any) -> None:
        Cupy.cuda.stream = self._before


class Cupy:
    """The part of CuPy that the runtime uses."""

    ndarray = Array
    exp, log1p, sign, isnan, isinf = np.exp, np.log1p, np.sign, np.isnan, np.isinf
    minimum, maximum = np.minimum, np.maximum

    class cuda:
        Device = Device
        stream = 0
        Stream = _Stream

        @classmethod
        def get_current_stream(cls) -> Any:
            return type("Stream", (), {"ptr": cls.stream})

    @staticmethod
    def ascontiguousarray(X: Array, dtype: Any) -> Array:
        ready = X.array.flags.c_contiguous and X.array.dtype == dtype
        return X if ready else later(lambda: np.ascontiguousarray(X.array, dtype))

    @staticmethod
    def empty(shape: tuple[int, ...], dtype: Any) -> Array:
        return Array(np.full(shape, np.nan if np.dtype(dtype).kind == "f" else -1).astype(dtype))

    @staticmethod
    def where(condition: Array, one: Any, other: Any) -> Array:
        values = [getattr(given, "array", given) for given in (one, other)]
        return later(lambda: np.where(condition.array, *values))

    @staticmethod
    def asnumpy(X: Array) -> np.ndarray:
        # Copies in the current stream, and waits for it.
        elsewhere("cuStreamSynchronize", ctypes.c_void_p(Cupy.cuda.stream))
        return X.array.copy()

    @staticmethod
    def forget() -> None:
        """Drop the references to all work, done or not."""
        _queued.clear()

    @staticmethod
    def asarray(array: np.ndarray) -> Array:
        return Array(array.copy())

    @staticmethod
    def from_dlpack(tensor: Any) -> Array:
        assert tensor.__dlpack_device__() == (2, 0)
        return Array(on_host(tensor))


def on_host(tensor: Any) -> np.ndarray:
    """Return the memory of a tensor that is labelled as a GPU's, as an array that keeps it alive."""
    capsule, (kind, _) = tensor.__dlpack__(), tensor.__dlpack_device__()
    assert kind == 2
    return np.from_dlpack(_Host(_relabelled(capsule, 0, 1)))


class _Host:
    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0
