"""Interleave columns to a matrix of rows."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

Interleave = Callable[[Any, int, int, int, int], None]
"""The executor's ``hbtvm_interleave``: columns' addresses and number, bytes of a value, rows, the matrix."""

_ROWS = 1024  # rows copied at a time, so that the matrix's lines stay in the cache for the next column
_FEW = 256  # fewest rows for which a call of C pays


def matrix_of(
    columns: Iterable[np.ndarray], n: int, dtype: np.dtype, interleave: Interleave | None
) -> np.ndarray:
    """Return a matrix of columns.

    `columns`: shape (n,) each; numbers or booleans.
    `dtype`: of the matrix.
    `interleave`: copies columns of that type faster than numpy; None if the package's executor lacks it.
    Returns shape (n, columns), C-contiguous.
    """
    arrays = list(columns)
    out = np.empty((n, len(arrays)), dtype)
    fast = interleave is not None and n >= _FEW and dtype.itemsize in (4, 8)
    if fast and all(x.dtype == dtype and x.flags.c_contiguous and x.flags.aligned for x in arrays):
        assert interleave is not None
        addresses = (ctypes.c_void_p * len(arrays))(*(x.ctypes.data for x in arrays))
        interleave(addresses, len(arrays), dtype.itemsize, n, out.ctypes.data)
        return out
    fill_columns(dict(enumerate(arrays)), out)
    return out


def fill_columns(columns: Mapping[int, np.ndarray], out: np.ndarray) -> None:
    """Copy columns into some columns of a matrix, shape (n, columns)."""
    for start in range(0, len(out), _ROWS):
        rows = slice(start, start + _ROWS)
        for j, x in columns.items():
            out[rows, j] = x[rows]
