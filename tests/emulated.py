"""GPU packages that run on a CPU: kernels from their very CUDA source, behind a stand-in for the driver.

All of the runtime for GPUs is as it is on a machine with one, down to the calls of the driver's functions.
"""

from __future__ import annotations

import ctypes
import functools
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cuda_kernels import kernel_text

from hbtvm.compiler import cuda_build
from hbtvm.runtime import driver

NO_COMPILER = None if shutil.which("g++") else "there is no g++ on this machine"
DEVICES, CAPABILITY, MEMORY, FAILURE, VERSION, UNREADABLE, NOT_READY = range(7)
USED, PIECES, LAUNCHES, DEPTH = range(4)
_HERE = Path(__file__).parent
_folder = tempfile.TemporaryDirectory(prefix="hbtvm-tests-")


def _compiled(text: str, name: str, *options: str) -> str:
    made = str(Path(_folder.name, name))
    command = ["g++", "-std=c++17", "-w", "-shared", "-fPIC", "-x", "c++", "-", "-o", made, *options]
    done = subprocess.run([*command, "-I", str(_HERE)], input=text, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr[:2000]
    return made


@functools.cache
def driver_library() -> str:
    """Path of the stand-in for the driver."""
    return _compiled((_HERE / "fake_driver.cpp").read_text(), "libfakecuda.so", "-O1", "-ldl")


@functools.cache
def machine_code(source: str) -> bytes:
    """What stands for a module of machine code: the path of a library of emulated kernels."""
    text = kernel_text(source)
    kernel = r"__global__ void (?:__launch_bounds__\([^)]*\)\s*)?(\w+)\(\s*([^{;]*?)\)\s*\{"
    for name, signature in re.findall(kernel, text):
        given = [re.sub(r"\b(__restrict__|const)\b|\w+$", "", one).strip() for one in signature.split(",")]
        passed = ", ".join(f"*({one}*)given_{name}[{at}]" for at, one in enumerate(given))
        sizes = ", ".join(f"sizeof({one})" for one in given)
        text += f"""
            static void **given_{name};
            static void one_{name}() {{ {name}({passed}); }}
            extern "C" size_t sizes_{name}[] = {{ {sizes}, 0 }};
            extern "C" void launch_{name}(void **given, const unsigned *sizes) {{
              given_{name} = given;
              for (blockIdx.z = 0; blockIdx.z < sizes[2]; ++blockIdx.z)
              for (blockIdx.y = 0; blockIdx.y < sizes[1]; ++blockIdx.y)
              for (blockIdx.x = 0; blockIdx.x < sizes[0]; ++blockIdx.x)
                emulation::block(sizes[3], sizes[4], false, one_{name});
            }}
        """
    return b"EMULATED:" + _compiled(text, f"kernel{len(text)}-{hash(text) % 10**9}.so", "-O1").encode()


class Machine:
    """The stand-in's own settings and counts."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(driver_library())
        self._library.fake_get.restype = ctypes.c_long

    def set(self, which: int, value: int) -> None:
        self._library.fake_set(which, ctypes.c_long(value))

    def get(self, which: int) -> int:
        return int(self._library.fake_get(which))

    def stream(self) -> int:
        """A new stream, of somebody else's."""
        made = ctypes.c_void_p()
        self._library.cuStreamCreate(ctypes.byref(made), 1)
        return int(made.value or 0)


@contextmanager
def machine() -> Iterator[Machine]:
    """A machine with two emulated GPUs, for which kernels are compiled in an instant."""
    found = Machine()
    settings = {
        DEVICES: 2,
        CAPABILITY: 90,
        MEMORY: 1 << 30,
        FAILURE: 0,
        VERSION: 13000,
        UNREADABLE: 0,
        NOT_READY: 0,
    }
    for which, value in settings.items():
        found.set(which, value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "LIBRARY", driver_library())
        patch.setattr(driver, "_known", {})
        driver._driver.cache_clear()
        patch.setattr(cuda_build, "machine_code", lambda source, *_, **__: (machine_code(source), ""))
        patch.setattr(cuda_build, "check_toolkit", lambda target: None)
        yield found
    driver._driver.cache_clear()


def _relabelled(capsule: Any, device: int) -> Any:
    """A DLPack capsule of host memory that says it lies on a GPU."""
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    address = get(capsule, b"dltensor")
    ctypes.c_int32.from_address(address + 8).value = 2
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


class Array:
    """As `cupy.ndarray`, in memory of the host."""

    __module__ = "cupy"

    def __init__(self, array: np.ndarray, device: int = 0) -> None:
        self.array, self.device = array, Device(device)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.array, name)

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, key: Any) -> Array:
        return Array(self.array[key], self.device.id)

    def __mul__(self, factor: float) -> Array:
        return Array(self.array * factor, self.device.id)

    def __eq__(self, other: object) -> Any:
        return Array(self.array == other, self.device.id)

    __hash__ = None  # type: ignore[assignment]

    def __dlpack__(self, **_: Any) -> Any:
        return _relabelled(self.array.__dlpack__(), self.device.id)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.device.id


class Cupy:
    """As much of CuPy as the runtime uses."""

    ndarray = Array

    class cuda:
        Device = Device
        stream = 0

        @classmethod
        def get_current_stream(cls) -> Any:
            return type("Stream", (), {"ptr": cls.stream})

    @staticmethod
    def ascontiguousarray(X: Array, dtype: Any) -> Array:
        return Array(np.ascontiguousarray(X.array, dtype), X.device.id)

    @staticmethod
    def empty(shape: tuple[int, ...], dtype: Any) -> Array:
        return Array(np.full(shape, np.nan, dtype))

    @staticmethod
    def where(condition: Array, one: Any, other: Array) -> Array:
        return Array(np.where(condition.array, one, other.array), other.device.id)

    @staticmethod
    def isnan(X: Array) -> np.ndarray:
        return np.isnan(X.array)

    @staticmethod
    def isinf(X: Array) -> np.ndarray:
        return np.isinf(X.array)

    @staticmethod
    def asnumpy(X: Array) -> np.ndarray:
        # Copies in the current stream, and waits for it.
        ctypes.CDLL(driver_library()).cuStreamSynchronize(ctypes.c_void_p(Cupy.cuda.stream))
        return X.array.copy()

    @staticmethod
    def asarray(array: np.ndarray) -> Array:
        return Array(array.copy())
