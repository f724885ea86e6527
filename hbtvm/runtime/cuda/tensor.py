"""Our own memory on a GPU, as an array that other libraries can take over without a copy."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import tvm_ffi

from hbtvm.runtime.cuda.driver import Gpu
from hbtvm.runtime.cuda.memory import Memory

_CUDA = 2
_KIND_AT, _NUMBER_AT = 8, 12
"""Where a DLPack tensor says what kind of device it lies on, and which, after its address."""


def tensor(memory: Memory, shape: tuple[int, ...], dtype: np.dtype) -> Any:
    """A `tvm_ffi.Tensor` of device memory, which lives as long as anybody has it.

    Parameters
    ----------
    shape, dtype
        What lies there, C-contiguous; a type of numpy's that DLPack knows.
    """
    return tvm_ffi.from_dlpack(_capsule(np.asarray(_Window(memory, shape, dtype)), memory.gpu.index))


def tensor_of(gpu: Gpu, array: np.ndarray) -> Any:
    """A copy of an array on a device, complete when this returns."""
    native = np.ascontiguousarray(array, array.dtype.newbyteorder("="))
    with gpu.current():
        return tensor(Memory.of(gpu, native), native.shape, native.dtype)


class _Window:
    """Memory as numpy takes it over: its address is passed on, and never read."""

    def __init__(self, memory: Memory, shape: tuple[int, ...], dtype: np.dtype) -> None:
        self._memory = memory
        self.__array_interface__ = {
            "version": 3,
            "data": (memory.handle, False),
            "shape": shape,
            "typestr": dtype.str,
        }


def _capsule(array: np.ndarray, device: int) -> Any:
    """A DLPack capsule of an array whose memory is a GPU's.

    Numpy makes it, since what ends its life must not be written in Python: other libraries may let
    go of it when the interpreter has ended. Numpy only takes the memory for the host's.
    """
    capsule = array.__dlpack__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    at = pointer(capsule, b"dltensor")
    ctypes.c_int32.from_address(at + _KIND_AT).value = _CUDA
    ctypes.c_int32.from_address(at + _NUMBER_AT).value = device
    return capsule
