"""Aligned memory for kernels."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hbtvm.runtime.package.signature import ALIGNMENT


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
