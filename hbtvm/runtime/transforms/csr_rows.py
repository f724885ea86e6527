"""Sparse rows of scipy (CSR) from valid indices and values."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from hbtvm.errors import missing_package

MOST_INT32 = (1 << 31) - 1  # most entries for which scipy's indices are int32


class CsrRows:
    """Makes ``scipy.sparse.csr_matrix`` objects.

    scipy's constructor checks its arrays, which takes longer than computing a row. So matrices are copies of
    an empty matrix with other attributes, if a trial shows that this works with the installed scipy; else the
    constructor is called.

    Raises `MissingPackageError` if scipy is not installed.

    `width`: columns.
    `dtype`: type of the values.
    """

    def __init__(self, width: int, dtype: np.dtype) -> None:
        self._class = sparse_library().csr_matrix
        self._width = width
        empty = self._class((0, width), dtype=dtype)
        # Indices ascend in every row, without duplicates.
        empty.has_sorted_indices = empty.has_canonical_format = True
        self._attributes = dict(getattr(empty, "__dict__", {}))
        self._quick = _works(self)

    def make(self, data: np.ndarray, indices: np.ndarray, indptr: np.ndarray) -> Any:
        """Return the matrix of rows, which keeps the arrays.

        `data`: shape (entries,).
        `indices`: int32 or int64, shape (entries,): columns, ascending in each row.
        `indptr`: the same dtype, shape (n + 1,): starts of rows.
        """
        shape = len(indptr) - 1, self._width
        if not self._quick:
            return self._class((data, indices, indptr), shape=shape, copy=False)
        return self._of_attributes(data, indices, indptr, shape)

    def _of_attributes(self, data: Any, indices: Any, indptr: Any, shape: tuple[int, int]) -> Any:
        matrix = self._class.__new__(self._class)
        attributes = matrix.__dict__
        attributes.update(self._attributes)
        attributes["data"], attributes["indices"], attributes["indptr"] = data, indices, indptr
        attributes["_shape"] = shape
        return matrix

    def of_places(self, places: np.ndarray, values: np.ndarray | None) -> Any:
        """Return the matrix of rows with at most `places.shape[1]` entries each.

        `places`: int32, shape (n, most): columns, ascending in each row; -1 for no entry. The matrix may keep
            it.
        `values`: the matrix's dtype, shape (n, most); None if all are 1. The matrix may keep it.
        """
        n, most = places.shape
        dtype = self._attributes["data"].dtype if self._attributes else np.dtype(np.float64)
        kind: Any = np.int32 if n * most <= MOST_INT32 else np.int64
        flat = places.reshape(-1)
        absent = np.flatnonzero(flat < 0)
        indptr = np.arange(0, n * most + 1, most, dtype=kind) if most else np.zeros(n + 1, kind)
        if not len(absent):
            data = np.ones(len(flat), dtype) if values is None else values.reshape(-1)
            return self.make(data, flat.astype(kind, copy=False), indptr)
        indptr[1:] -= np.cumsum(np.bincount(absent // most, minlength=n)).astype(kind)
        stored = flat >= 0
        indices = flat[stored].astype(kind, copy=False)
        data = np.ones(len(indices), dtype) if values is None else values.reshape(-1)[stored]
        return self.make(data, indices, indptr)


def side_by_side(parts: Sequence[Any]) -> Any:
    """Concatenate the columns of several ``csr_matrix`` objects with ascending indices."""
    entries, width = sum(len(part.data) for part in parts), sum(part.shape[1] for part in parts)
    kind: Any = np.int32 if max(entries, width) <= MOST_INT32 else np.int64
    indptr = np.zeros(len(parts[0].indptr), kind)
    for part in parts:
        indptr += part.indptr
    dtype = np.result_type(*(part.dtype for part in parts))
    data, indices = np.empty(entries, dtype), np.empty(entries, kind)
    # The position of each row's next entry.
    next_one, first = indptr[:-1].copy(), 0
    for part in parts:
        counts = np.diff(part.indptr)
        at = np.repeat(next_one - part.indptr[:-1], counts)
        at += np.arange(len(at), dtype=at.dtype)
        data[at], indices[at] = part.data, part.indices
        indices[at] += first
        next_one += counts
        first += part.shape[1]
    return CsrRows(width, dtype).make(data, indices, indptr)


def sparse_library() -> Any:
    """Return scipy.sparse.

    Raises `MissingPackageError` if it is not installed.
    """
    try:
        return importlib.import_module("scipy.sparse")
    except ImportError:
        raise missing_package("sparse rows of a pipeline need", "scipy", "scipy") from None


def _works(rows: CsrRows) -> bool:
    """Return whether a matrix from attributes equals the constructor's matrix."""
    width = rows._width
    if not {"_shape", "data", "indices", "indptr"} <= set(rows._attributes):
        return False
    dtype = rows._attributes["data"].dtype
    count = min(width, 1)
    arrays = np.ones(count, dtype), np.zeros(count, np.int32), np.array([0, count, count], np.int32)
    try:
        matrix = rows._of_attributes(*arrays, (2, width))
        matrix.check_format(full_check=True)
        expected = rows._class(arrays, shape=(2, width))
        same = matrix.shape == expected.shape and matrix.dtype == dtype and (matrix != expected).nnz == 0
        return same and set(expected.__dict__) <= set(matrix.__dict__)
    except Exception:
        return False
