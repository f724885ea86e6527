"""Tensors in GPU memory of hbtvm, which other libraries adopt without a copy."""

from __future__ import annotations

import ctypes
import importlib
from typing import Any

import numpy as np

from hbtvm.errors import missing_package
from hbtvm.runtime.cuda.driver import Gpu
from hbtvm.runtime.cuda.memory import Memory

_CUDA = 2
_KIND_AT, _NUMBER_AT = 8, 12  # offsets in bytes of a DLPack tensor's device type and device number


def ffi() -> Any:
    """Return the module `tvm_ffi`, which only rows and results on a device need.

    Raises `MissingPackageError` if it is not installed.
    """
    # It takes most of a second to import, and longer if torch is installed.
    try:
        return importlib.import_module("tvm_ffi")
    except ImportError as error:
        raise missing_package("rows on a GPU need", "tvm_ffi", "hbtvm[cuda]") from error


def tensor(memory: Memory, shape: tuple[int, ...], dtype: np.dtype) -> Any:
    """Return a `tvm_ffi.Tensor` in device memory, which it keeps alive.

    `shape`, `dtype`: of the C-contiguous array in the memory; DLPack must support the dtype.
    """
    return ffi().from_dlpack(_capsule(np.asarray(_Window(memory, shape, dtype)), memory.gpu.index))


def tensor_of(gpu: Gpu, array: np.ndarray) -> Any:
    """Return a completed copy of an array on a device."""
    native = np.ascontiguousarray(array, array.dtype.newbyteorder("="))
    with gpu.current():
        return tensor(Memory.of(gpu, native), native.shape, native.dtype)


class _Window:
    """Device memory as an array interface: numpy passes its address on without reading it."""

    def __init__(self, memory: Memory, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self._memory = memory
        self.__array_interface__ = {
            "version": 3,
            "data": (memory.handle, False),
            "shape": shape,
            "typestr": dtype.str,
        }


def _capsule(array: np.ndarray, device: int) -> Any:
    """Return a DLPack capsule of an array in GPU memory.

    Numpy creates it, because its deleter must not be Python code: other libraries may release it after the
    interpreter has ended. Numpy states host memory, which is corrected here.
    """
    capsule = array.__dlpack__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    at = pointer(capsule, b"dltensor")
    ctypes.c_int32.from_address(at + _KIND_AT).value = _CUDA
    ctypes.c_int32.from_address(at + _NUMBER_AT).value = device
    return capsule
