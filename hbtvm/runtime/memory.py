"""Aligned memory for kernels, and its hand-over to them by DLPack."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import tvm_ffi

from hbtvm.runtime.signature import ALIGNMENT


def empty(shape: tuple[int, ...], dtype: Any) -> np.ndarray:
    """Return an uninitialized array that begins at a multiple of `ALIGNMENT`."""
    dtype = np.dtype(dtype)
    size = math.prod(shape) * dtype.itemsize
    memory = np.empty(size + ALIGNMENT, np.uint8)
    start = -int(memory.ctypes.data) % ALIGNMENT
    result: np.ndarray = memory[start : start + size].view(dtype).reshape(shape)
    return result


def aligned(array: np.ndarray) -> np.ndarray:
    """Return the array itself if it is contiguous and aligned, else a copy that is."""
    if array.flags.c_contiguous and array.ctypes.data % ALIGNMENT == 0:
        return array
    copy = empty(array.shape, array.dtype)
    copy[...] = array
    return copy


def tensor(array: np.ndarray) -> Any:
    """Return the array as a kernel's argument, without a copy."""
    try:
        return tvm_ffi.from_dlpack(array)
    except BufferError:
        # Numpy exports no read-only memory; kernels only read their rows and tables.
        return tvm_ffi.from_dlpack(np.asarray(_Writable(array)))


class _Writable:
    """A read-only array's memory, declared writable; keeps the array alive."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        described = dict(array.__array_interface__)
        described["data"] = (described["data"][0], False)
        self.__array_interface__ = described
