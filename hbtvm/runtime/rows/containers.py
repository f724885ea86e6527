"""Containers of rows: pandas, polars and pyarrow tables, arrays, lists and dicts, read a column at a time.

This module imports none of these libraries: an object of a library shows that it is loaded. Unread columns
are not touched.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hbtvm.errors import ROW, InputError
from hbtvm.runtime.rows.arrow_column import FLAT, arrow_column, check_arrow
from hbtvm.runtime.rows.frames import NUMBERS
from hbtvm.runtime.rows.pandas_frame import PandasFrame, column_of
from hbtvm.runtime.rows.raw import Numbers, Objects, RawColumn, Text, Times, Unreadable, Values
from hbtvm.words.similar import misspelt

_PLAIN = frozenset((str, int, float, bool, type(None)))


class Container:
    """Rows, by column."""

    # `rows`, `width`: numbers of rows and columns
    rows: int
    width: int
    # The columns' names; None if unnamed, or if names are not strings
    names: tuple[str, ...] | None = None

    def column(self, at: int, null: Any) -> RawColumn:
        """Return a column; `null` is the meaning of a missing value."""
        raise NotImplementedError

    def row(self, at: Sequence[int], nulls: Sequence[Any]) -> list[Any] | None:
        """Return Python values of the only row's columns; None if the columns' types matter."""
        return None

    def numbers(self) -> np.ndarray | None:
        """Return all values, shape (rows, width), if one array of numbers holds them; else None."""
        return None


class ArrayRows(Container):
    """A two-dimensional numpy array of numbers, texts or Python objects."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array
        self.rows, self.width = array.shape

    def column(self, at: int, null: Any) -> RawColumn:
        column = self.array[:, at]
        if column.dtype.kind in NUMBERS:
            return Numbers(column)
        if column.dtype.kind == "O":
            return Objects(column)
        if column.dtype.kind == "M":
            return Times(column, str(column.dtype))
        return Values(column.tolist()) if column.dtype.kind in "UT" else Unreadable(str(column.dtype))

    def numbers(self) -> np.ndarray | None:
        return self.array if self.array.dtype.kind in NUMBERS else None

    def row(self, at: Sequence[int], nulls: Sequence[Any]) -> list[Any] | None:
        if self.array.dtype.kind not in "OUT" and self.array.dtype != np.float64:
            return None
        values = self.array[0].tolist()
        return [values[i] for i in at]


class ValueRows(Container):
    """Rows of one value each, such as texts."""

    def __init__(self, column: RawColumn, rows: int) -> None:
        self._column = column
        self.rows, self.width = rows, 1

    def column(self, at: int, null: Any) -> RawColumn:
        return self._column


class ListRows(Container):
    """Sequences of values; not converted to an array, which would turn numbers beside texts into texts."""

    def __init__(self, rows: Sequence[Sequence[Any]], width: int) -> None:
        self._rows = rows
        self.rows, self.width = len(rows), width
        for i, row in enumerate(rows):
            if len(row) != width:
                raise InputError(f"expected rows of {width} columns, got {len(row)} values in row {ROW}.", i)

    def column(self, at: int, null: Any) -> RawColumn:
        return Values([row[at] for row in self._rows])

    def row(self, at: Sequence[int], nulls: Sequence[Any]) -> list[Any] | None:
        return [self._rows[0][i] for i in at]


class DictRows(Container):
    """Dicts of values by column name, as a service gets them; None is a missing value of any kind.

    Unread keys may be absent, and further keys present.
    """

    def __init__(self, rows: Sequence[Mapping[str, Any]], names: tuple[str, ...]) -> None:
        self._rows, self.names = rows, names
        self.rows, self.width = len(rows), len(names)

    def column(self, at: int, null: Any) -> RawColumn:
        assert self.names is not None
        name, values = self.names[at], []
        for i, row in enumerate(self._rows):
            if name not in row:
                place = f" in row {ROW}" if len(self._rows) > 1 else ""
                hint = misspelt(name, [key for key in row if key not in self.names]) or "."
                raise InputError(f"column {name!r} is missing{place}{hint}", i)
            values.append(row[name])
        return Values(values if null is None else [null if value is None else value for value in values])


class PolarsFrame(Container):
    """A polars.DataFrame."""

    def __init__(self, frame: Any) -> None:
        self._frame = frame
        self.rows, self.width = frame.shape
        self.names = tuple(frame.columns)

    def column(self, at: int, null: Any) -> RawColumn:
        polars = sys.modules["polars"]
        series = self._frame.to_series(at)
        kind = series.dtype
        if kind == polars.Boolean and not series.null_count():
            return Numbers(series.to_numpy())
        plain = kind.is_numeric() and not kind.is_decimal() and str(kind) not in ("Int128", "UInt128")
        if plain and (kind.is_float() or not series.null_count()):
            return Numbers(series.to_numpy())
        if kind == polars.String:
            return Text(series.to_arrow(), null)
        if kind in (polars.Categorical, polars.Enum):
            return Text(series.cast(polars.String).to_arrow(), null)
        if kind.is_numeric() or kind in (polars.Boolean, polars.Object, polars.Null):
            values = series.to_list()
            return Values(values if null is None else [null if value is None else value for value in values])
        if kind in (polars.Datetime, polars.Date):
            return arrow_column(series.to_arrow(), null)
        return Unreadable(str(kind))

    def row(self, at: Sequence[int], nulls: Sequence[Any]) -> list[Any] | None:
        polars = sys.modules["polars"]
        if any(kind in (polars.Float32, polars.Float16) for kind in self._frame.dtypes):
            return None
        row = self._frame.row(0)
        return _with_nulls([row[i] for i in at], nulls)


class ArrowTable(Container):
    """A pyarrow.Table or pyarrow.RecordBatch."""

    def __init__(self, table: Any) -> None:
        check_arrow(table)
        self._table = table
        self.rows, self.width = table.num_rows, table.num_columns
        self.names = tuple(table.schema.names)

    def column(self, at: int, null: Any) -> RawColumn:
        return arrow_column(self._table.column(at), null)

    def row(self, at: Sequence[int], nulls: Sequence[Any]) -> list[Any] | None:
        columns = [self._table.column(i) for i in at]
        for column in columns:
            if column.type.id not in FLAT:
                check_arrow(column)
        values = [column[0].as_py() for column in columns]
        floats = {column.type for column, value in zip(columns, values, strict=True) if type(value) is float}
        if any(kind.bit_width < 64 for kind in floats):
            return None
        return _with_nulls(values, nulls)


def container_of(X: Any, names: tuple[str, ...] | None) -> Container | PandasFrame | None:
    """Return the container of rows; None for rows of other kinds.

    Raises `InputError` if they are of such a kind, but can't be read.

    `names`: the model's columns, which are dicts' keys.
    """
    if isinstance(X, np.ndarray):
        return ArrayRows(X) if X.ndim == 2 else None
    if isinstance(X, Mapping):
        return DictRows([X], _needed(names))
    module = type(X).__module__.partition(".")[0]
    if module == "pandas" and isinstance(X, sys.modules["pandas"].DataFrame):
        return PandasFrame(X)
    if module == "polars":
        polars = sys.modules["polars"]
        if isinstance(X, polars.LazyFrame):
            raise InputError("expected rows, got a polars LazyFrame; collect() it first.")
        if isinstance(X, polars.DataFrame):
            return PolarsFrame(X)
    if module == "pyarrow":
        arrow = sys.modules["pyarrow"]
        if isinstance(X, arrow.Table | arrow.RecordBatch):
            return ArrowTable(X)
    if isinstance(X, list | tuple):
        if X and all(isinstance(row, Mapping) for row in X):
            return DictRows(X, _needed(names))
        if X and all(isinstance(row, list | tuple) for row in X):
            return ListRows(X, len(X[0]))
    return None


def values_of(X: Any) -> ValueRows:
    """Return the container of rows of one value each: texts, dicts or lists of features.

    Raises `InputError` for other rows.

    `X`: a list, any other iterable, an array of one dimension, a series of pandas or polars, an array of
        pyarrow; a table of one column.
    """
    if isinstance(X, str | bytes):
        raise InputError("expected rows of one text each, such as a list of texts, got one text by itself.")
    if isinstance(X, Mapping):
        return ValueRows(Values([X]), 1)
    if isinstance(X, np.ndarray) and X.ndim == 1:
        if X.dtype.kind == "O":
            return ValueRows(Objects(X), len(X))
        return ValueRows(Numbers(X) if X.dtype.kind in NUMBERS else Values(X.tolist()), len(X))
    if isinstance(X, list | tuple):
        return ValueRows(Values(X if isinstance(X, list) else list(X)), len(X))
    if hasattr(X, "to_numpy") and isinstance(getattr(X, "dtype", None), np.dtype):
        return values_of(X.to_numpy())
    column = _series(X)
    if column is not None:
        return ValueRows(column, len(X))
    if isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind in "OUT":
        return ValueRows(Objects(X) if X.dtype.kind == "O" else Values(X.tolist()), len(X))
    table = container_of(X, None)
    if table is not None and table.width == 1:
        return ValueRows(table.column(0, None), table.rows)
    if table is not None or not hasattr(X, "__iter__") or (isinstance(X, np.ndarray) and not X.ndim):
        raise InputError(
            f"expected rows of one value each, got a {type(X).__name__}; pass one of its columns."
        )
    return values_of(list(X))


def _series(X: Any) -> RawColumn | None:
    """Return a single column of pandas, polars or pyarrow."""
    module = type(X).__module__.partition(".")[0]
    library: Any = sys.modules.get(module)
    if module == "pandas" and isinstance(X, library.Series):
        return column_of(X.array)
    if module == "polars" and isinstance(X, library.Series):
        return Text(X.to_arrow(), None) if X.dtype == library.String else Values(X.to_list())
    if module == "pyarrow" and isinstance(X, library.Array | library.ChunkedArray):
        return arrow_column(X, None)
    return None


def _needed(names: tuple[str, ...] | None) -> tuple[str, ...]:
    if names is None:
        raise InputError(
            "the model was trained without column names; expected an array or lists, got a dict."
        )
    return names


def _with_nulls(values: Sequence[Any], nulls: Sequence[Any]) -> list[Any] | None:
    """Return a row's values; None if a value's type is one that `Container.column` may refuse."""
    if not all(type(value) in _PLAIN for value in values):
        return None
    return [null if value is None else value for value, null in zip(values, nulls, strict=True)]
