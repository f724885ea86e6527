"""Tables whose rows are sparse: from codes and numbers to places and values, without the dense columns.

What an encoder makes of one value is at most one entry of a row, whatever number of columns it has: so a row
has an entry at most for each value that is encoded, and one for each other column.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hbtvm.errors import InputError
from hbtvm.graph.feeds import Feed
from hbtvm.graph.graph import InputSpec
from hbtvm.graph.lower import Coded, resolve
from hbtvm.graph.steps import Cast, Step
from hbtvm.graph.table import Column, Raw, Table
from hbtvm.runtime.coder import Coder, folds
from hbtvm.runtime.csr_rows import CsrRows
from hbtvm.runtime.dense_codes import DenseCodes
from hbtvm.runtime.feeds import FeedReader, place_of
from hbtvm.runtime.text_kernel import TextLibrary

_INT32 = np.dtype(np.int32)


@dataclass
class _Entry:
    """At most one entry of each row.

    Attributes
    ----------
    column
        What is read: its source and the steps that make codes, or all of them.
    places, values
        By code, the table's column (-1 for none) and the value there; None for a number as it comes, whose
        column is `at`.
    at
        The table's first column of the entry.
    """

    column: Column
    at: int
    places: np.ndarray | None = None
    values: np.ndarray | None = None


def dtype_of(table: Table) -> np.dtype | None:
    """The type of a table's columns together, where it is the same for rows of any type; else None."""
    kinds = {_last_cast(column.steps) for column in table.columns}
    if "float64" in kinds:
        return np.dtype(np.float64)
    return np.dtype(np.float32) if kinds == {"float32"} else None


class SparseTable:
    """Computes the sparse rows of a table whose type `dtype_of` knows.

    Parameters
    ----------
    spec
        What the pipeline accepts.
    table
        The table.
    library
        The code that cuts texts into terms.

    Raises
    ------
    MissingPackageError
        If scipy is not installed.
    """

    def __init__(self, spec: InputSpec, table: Table, library: TextLibrary) -> None:
        dtype = dtype_of(table)
        assert dtype is not None
        self._dtype = dtype
        self._csr = CsrRows(len(table), dtype)
        self._entries = entries = _entries_of(table)
        feeds = [_feed(spec, one.column) for one in entries]
        self._reader = FeedReader(spec, feeds, "float64", ("float64",), library=library)
        self._width = spec.n_features
        self._coded = [i for i, one in enumerate(entries) if one.places is not None]
        self._plain = [i for i, one in enumerate(entries) if one.places is None]
        tables = [one.places for one in entries if one.places is not None]
        values = [one.values for one in entries if one.values is not None]
        self._places = np.concatenate(tables) if tables else np.empty(0, _INT32)
        self._first = np.cumsum([0, *(len(one) for one in tables[:-1])])
        self._values = np.concatenate(values).astype(dtype) if values else np.empty(0, dtype)
        # The columns of numbers as they come.
        self._columns = np.array([entries[i].at for i in self._plain], _INT32)
        self._ones = not self._plain and bool((self._values[self._places >= 0] == 1).all())
        # By code, for one row.
        self._pairs = [
            None
            if one.places is None or one.values is None
            else list(zip(one.places.tolist(), one.values.tolist(), strict=True))
            for one in entries
        ]
        self._dense: DenseCodes | None = None
        self._of_row: list[tuple[int, Callable[[Any], int]]] | None = None
        self._exact_row = False
        if self._ones and all(isinstance(one.column.source, Raw) for one in entries):
            self._shortcuts()

    def _shortcuts(self) -> None:
        """For arrays of which nothing but codes is read, and where all values are 1."""
        coders, of_row = [], []
        for one in self._entries:
            source = one.column.source
            assert isinstance(source, Raw) and one.places is not None
            coder, places = Coder(one.column.steps), one.places.tolist()
            coders.append(coder)
            of_row.append(
                (source.index, {key: places[code] for key, code in coder.table.items()}.__getitem__)
            )
        self._dense = DenseCodes(coders, [one.places for one in self._entries if one.places is not None])
        self._raws = [raw for raw, _ in of_row]
        self._of_row = of_row
        # What is filled in is rounded to the type of the rows.
        self._exact_row = any(coder.fills for coder in coders)

    def rows(self, X: Any) -> Any:
        """Return the table's rows, a ``csr_matrix``.

        Parameters
        ----------
        X
            As for `FeedReader.prepare`.

        Raises
        ------
        InputError
            If the rows don't fit the pipeline, or there are none.
        """
        if type(X) is np.ndarray and self._dense is not None and X.ndim == 2 and X.shape[1] == self._width:
            if len(X) == 1:
                found = self._array_row(X)
                if found is not None:
                    return found
            elif len(X):
                places = self._dense.matrix(X, self._raws, _INT32)
                if places is not None:
                    return self._csr.of_places(places, None)
        matrix = self._reader.prepare(X)
        if not len(matrix):
            raise InputError("expected at least one row, got none.")
        if self._reader.checks:
            self._reader.check(matrix)
        if len(matrix) == 1:
            return self._row(matrix[0].tolist())
        return self._many(matrix)

    def _array_row(self, X: np.ndarray) -> Any:
        """The only row of an array; None where some value has to be looked at by itself."""
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
            places = [one for one in places if one >= 0]
        return self._one(places, None)

    def _row(self, row: list[float]) -> Any:
        """One row of the matrix that the reader makes."""
        places: list[int] = []
        values: list[float] = []
        for x, pairs, entry in zip(row, self._pairs, self._entries, strict=True):
            place, value = (entry.at if x != 0 else -1, x) if pairs is None else pairs[int(x)]
            if place >= 0:
                places.append(place)
                values.append(value)
        return self._one(places, None if self._ones else values)

    def _one(self, places: list[int], values: list[float] | None) -> Any:
        count = len(places)
        data = np.ones(count, self._dtype) if values is None else np.array(values, self._dtype)
        return self._csr.make(data, np.array(places, _INT32), np.array((0, count), _INT32))

    def _many(self, matrix: np.ndarray) -> Any:
        """Rows of the matrix that the reader makes."""
        places = np.empty(matrix.shape, _INT32)
        values = None if self._ones else np.empty(matrix.shape, self._dtype)
        if self._coded:
            codes = (matrix if not self._plain else matrix[:, self._coded]).astype(np.intp)
            codes += self._first
            places[:, self._coded] = self._places[codes]
            if values is not None:
                values[:, self._coded] = self._values[codes]
        if self._plain and values is not None:
            x = matrix[:, self._plain]
            places[:, self._plain] = np.where(x != 0, self._columns, _INT32.type(-1))
            values[:, self._plain] = x
        return self._csr.of_places(places, values)


def _entries_of(table: Table) -> list[_Entry]:
    """What a table's rows consist of, from left to right."""
    found: list[_Entry] = []
    key: tuple[Any, ...] | None = None
    for at, column in enumerate(table.columns):
        resolved = resolve(column)
        if not isinstance(resolved, Coded) or not _is_code(column, resolved):
            found.append(_Entry(column, at))
            key = None
            continue
        own = (column.source, *map(id, resolved.prefix))
        values = resolved.values.astype(np.float64)
        there = values != 0
        last = found[-1] if found else None
        if own != key or last is None or last.places is None or (last.places[there] >= 0).any():
            read = Column(column.source, resolved.prefix)
            last = _Entry(read, at, np.full(len(values), -1, _INT32), np.zeros(len(values)))
            found.append(last)
            key = own
        assert last.places is not None and last.values is not None
        last.places[there], last.values[there] = at, values[there]
    return found


def _is_code(column: Column, resolved: Coded) -> bool:
    """Whether nothing but a code of the input's column has to be known; and no number for it is refused."""
    if not isinstance(column.source, Raw) or not folds(resolved.prefix):
        return False
    values = resolved.values
    return (column.allow_nan or not np.isnan(values).any()) and (
        column.allow_inf or not np.isinf(values).any()
    )


def _feed(spec: InputSpec, column: Column) -> Feed:
    where = place_of(spec, column.source.index) if isinstance(column.source, Raw) else ""
    return Feed(column.source, column.steps, column.allow_nan, column.allow_inf, where)


def _last_cast(steps: Sequence[Step]) -> str | None:
    """The type that the last rounding gives a column."""
    return next((step.dtype for step in reversed(steps) if isinstance(step, Cast)), None)
