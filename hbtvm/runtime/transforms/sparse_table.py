"""Sparse rows of tables: from codes and numbers to indices and values, without dense columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hbtvm.errors import InputError
from hbtvm.graph.columns.feeds import Feed
from hbtvm.graph.columns.table import Column, Raw, Table
from hbtvm.graph.graph import InputSpec
from hbtvm.runtime.codes.coder import Coder, folds
from hbtvm.runtime.codes.dense import DenseCodes
from hbtvm.runtime.feeds.reader import FeedReader, place_of
from hbtvm.runtime.text.library import TextLibrary
from hbtvm.runtime.transforms.csr_rows import CsrRows
from hbtvm.runtime.transforms.sparse_entries import dtype_of, entries_of

_INT32, _F32, _F64 = np.dtype(np.int32), np.dtype(np.float32), np.dtype(np.float64)

_BLOCK = 1 << 13  # entries computed at a time


class SparseTable:
    """Computes the sparse rows of a table for which `is_known` is true.

    Raises `MissingPackageError` if scipy is not installed.

    `spec`: what the pipeline accepts.
    `library`: the code that cuts texts into terms.
    """

    def __init__(self, spec: InputSpec, table: Table, library: TextLibrary) -> None:
        self._dtype = dtype_of(table)
        dtypes: list[np.dtype] = [_F32, _F64] if self._dtype is None else [self._dtype]
        self._csr = {dtype: CsrRows(len(table), dtype) for dtype in dtypes}
        self._entries = entries = entries_of(table)
        feeds = [_feed(spec, entry.column) for entry in entries]
        read = ("float32", "float64") if self._dtype is None else ("float64",)
        self._reader = FeedReader(spec, feeds, "float64", read, library=library)
        self._width = spec.n_features
        self._coded = [i for i, entry in enumerate(entries) if entry.places is not None]
        self._plain = [i for i, entry in enumerate(entries) if entry.places is None]
        self._at_codes, self._at_plain = _columns(self._coded), _columns(self._plain)
        tables = [entry.places for entry in entries if entry.places is not None]
        values = [entry.values for entry in entries if entry.values is not None]
        self._places = np.concatenate([np.empty(0, _INT32), *tables])
        self._values = np.concatenate([np.empty(0), *values])
        starts = np.cumsum([0, *(len(table) for table in tables)])[:-1]
        self._rows = max(1, _BLOCK // len(entries))
        # Repeated for a block of rows: numpy is many times slower on rows of a few columns.
        self._first = np.tile(starts, (self._rows, 1))
        # The columns of unchanged numbers.
        self._columns = np.tile(np.array([entries[i].at for i in self._plain], _INT32), (self._rows, 1))
        self._all_ones = bool((self._values[self._places >= 0] == 1).all())
        self._ones = not self._plain and self._all_ones
        # By code, for one row.
        self._pairs = [
            None
            if entry.places is None or entry.values is None
            else list(zip(entry.places.tolist(), entry.values.tolist(), strict=True))
            for entry in entries
        ]
        self._dense: DenseCodes | None = None
        self._of_row: list[tuple[int, Callable[[Any], int]]] | None = None
        self._exact_row = False
        if self._ones and self._dtype is not None and all(folds(entry.column.steps) for entry in entries):
            self._shortcuts()

    def _shortcuts(self) -> None:
        """Prepare tables for arrays of which only codes are read, and for values that are all 1."""
        coders, of_row = [], []
        for entry in self._entries:
            source = entry.column.source
            assert isinstance(source, Raw) and entry.places is not None
            coder, places = Coder(entry.column.steps), entry.places.tolist()
            coders.append(coder)
            of_row.append(
                (source.index, {key: places[code] for key, code in coder.table.items()}.__getitem__)
            )
        self._dense = DenseCodes(
            coders, [entry.places for entry in self._entries if entry.places is not None]
        )
        self._raws = [raw for raw, _ in of_row]
        self._of_row = of_row
        # Filled-in values are rounded to the rows' dtype.
        self._exact_row = any(coder.fills for coder in coders)

    def rows(self, X: Any) -> Any:
        """Return the table's rows, a ``csr_matrix``.

        Raises `InputError` if the rows don't fit the pipeline, or there are none.

        `X`: as for `FeedReader.prepare`.
        """
        if type(X) is np.ndarray and self._dense is not None and X.ndim == 2 and X.shape[1] == self._width:
            if len(X) == 1:
                result = self._array_row(X)
                if result is not None:
                    return result
            elif len(X):
                places = self._dense.matrix(X, self._raws, _INT32)
                if places is not None:
                    assert self._dtype is not None
                    return self._csr[self._dtype].of_places(places, None)
        if self._dtype is None and type(X) is np.ndarray and X.dtype.kind in "iub":
            self._reader.plain.check_types(X)
            # The library converts whole numbers to float64, even those that float32 holds.
            X = X.astype(np.float64)
        matrix = self._reader.prepare(X)
        if not len(matrix):
            raise InputError("expected at least one row, got none.")
        if self._reader.checks:
            self._reader.check(matrix)
        dtype = self._dtype or matrix.dtype
        if len(matrix) == 1:
            return self._row(matrix[0].tolist(), dtype)
        return self._many(matrix, dtype)

    def _array_row(self, X: np.ndarray) -> Any:
        """Return the only row of an array; None if a value needs individual treatment."""
        kind = X.dtype.kind
        if self._exact_row and kind == "f" and X.dtype != np.float64:
            return None
        if kind not in "iufO":
            return None
        assert self._of_row is not None
        values = X[0].tolist()
        try:
            places = [of(values[raw]) for raw, of in self._of_row]
        except (KeyError, TypeError):
            return None
        if -1 in places:
            places = [place for place in places if place >= 0]
        assert self._dtype is not None
        return self._single_row(places, None, self._dtype)

    def _row(self, row: list[float], dtype: np.dtype) -> Any:
        """Return the sparse row of a row of the reader's matrix."""
        places: list[int] = []
        values: list[float] = []
        for x, pairs, entry in zip(row, self._pairs, self._entries, strict=True):
            place, value = (entry.at if x != 0 else -1, x) if pairs is None else pairs[int(x)]
            if place >= 0:
                places.append(place)
                values.append(value)
        return self._single_row(places, None if self._ones else values, dtype)

    def _single_row(self, places: list[int], values: list[float] | None, dtype: np.dtype) -> Any:
        count = len(places)
        data = np.ones(count, dtype) if values is None else np.array(values, dtype)
        return self._csr[dtype].make(data, np.array(places, _INT32), np.array((0, count), _INT32))

    def _many(self, matrix: np.ndarray, dtype: np.dtype) -> Any:
        """Return the sparse rows of the reader's matrix."""
        places = np.empty(matrix.shape, _INT32)
        values = None if self._ones else np.empty(matrix.shape, dtype)
        # In blocks of rows, so that intermediate results stay in the cache.
        for start in range(0, len(matrix), self._rows):
            rows = slice(start, start + self._rows)
            block_values = None if values is None else values[rows]
            self._fill(matrix[rows], places[rows], block_values)
        return self._csr[dtype].of_places(places, values)

    def _fill(self, matrix: np.ndarray, places: np.ndarray, values: np.ndarray | None) -> None:
        """Compute indices and values of some rows."""
        n = len(matrix)
        if self._coded:
            codes = matrix[:, self._at_codes].astype(np.intp)
            codes += self._first[:n]
            places[:, self._at_codes] = self._places.take(codes)
            if values is not None:
                values[:, self._at_codes] = 1 if self._all_ones else self._values.take(codes)
        if self._plain and values is not None:
            x = matrix[:, self._at_plain]
            values[:, self._at_plain] = x
            nonzero = x != 0
            known = self._columns[:n]
            if np.count_nonzero(nonzero) < nonzero.size:
                known = np.where(nonzero, known, _INT32.type(-1))
            places[:, self._at_plain] = known


def _columns(at: list[int]) -> Any:
    """Return an index of columns: a slice if they are adjacent."""
    together = at and at == list(range(at[0], at[-1] + 1))
    return slice(at[0], at[-1] + 1) if together else at


def _feed(spec: InputSpec, column: Column) -> Feed:
    where = place_of(spec, column.source.index) if isinstance(column.source, Raw) else ""
    return Feed(column.source, column.steps, column.allow_nan, column.allow_inf, where)
