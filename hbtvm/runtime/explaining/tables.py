"""Callers' rows as columns, which are mixed from two tables and put together as rows of the same kind.

This module imports no library of data frames: a frame shows that its library is loaded.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hbtvm.errors import InputError
from hbtvm.runtime.rows.frames import NUMBERS


@dataclass(frozen=True)
class Table:
    """Rows by column.

    `kind`: the library of the rows: ``"pandas"``, ``"polars"``, ``"pyarrow"``, ``"dict"`` or ``"array"``.
    `names`: names of the columns; None of an array.
    `columns`: a column each, of the library's type.
    """

    kind: str
    names: tuple[Any, ...] | None
    columns: tuple[Any, ...]
    rows: int

    def select(self, names: Sequence[str] | None) -> Table:
        """Return the columns of these names that exist, in their order; all columns without names."""
        if names is None or self.names is None:
            return self
        at = self.places(names)
        columns = tuple(self.columns[place] for place in at.values())
        return Table(self.kind, tuple(names[i] for i in at), columns, self.rows)

    def places(self, names: Sequence[str] | None) -> dict[int, int]:
        """Return the positions of the table's columns by those in `names`; None for the same positions."""
        if names is None or self.names is None:
            return {i: i for i in range(len(self.columns))}
        at = {name: i for i, name in enumerate(self.names)}
        return {i: at[name] for i, name in enumerate(names) if name in at}

    def values(self, names: Sequence[str] | None, width: int) -> np.ndarray:
        """Return the values for people: numbers, float64, or objects, shape (rows, width).

        `names`, `width`: the columns to return; NaN where a column is absent.
        """
        places = self.places(names)
        arrays = [
            _shown(self.kind, self.columns[places[i]]) if i in places else np.full(self.rows, np.nan)
            for i in range(width)
        ]
        plain = all(x.dtype.kind in NUMBERS for x in arrays)
        out = np.empty((self.rows, len(arrays)), np.float64 if plain else object)
        for i, column in enumerate(arrays):
            out[:, i] = column
        return out


class Mixer:
    """Rows that take each column from a row of one table or from a row of another.

    Raises `InputError` if the tables are of different kinds, or have different columns.

    `X`, `background`: the two tables.
    """

    def __init__(self, X: Table, background: Table) -> None:
        if X.kind != background.kind:
            raise InputError(
                f"the rows are of {_WHAT[X.kind]} and background of {_WHAT[background.kind]}; "
                "expected the same kind of both."
            )
        if X.names is not None:
            background = background.select(X.names)
        if X.names != background.names or len(X.columns) != len(background.columns):
            lacking = next((name for name in X.names or () if name not in (background.names or ())), None)
            what = f"column {lacking!r} is missing" if lacking is not None else "it has other columns"
            raise InputError(f"background: {what}; expected the columns of the rows.")
        self._kind, self._names, self._offset = X.kind, X.names, X.rows
        self._pool = [_joined(X.kind, a, b) for a, b in zip(X.columns, background.columns, strict=True)]

    def rows(self, own: np.ndarray, row: np.ndarray, background: np.ndarray) -> Any:
        """Return m rows.

        `own`: by row and column, whether the value is that of the first table; bool, (m, columns).
        `row`, `background`: the positions of the rows in the two tables, int64, (m,).
        """
        columns = [
            _taken(self._kind, pool, np.where(own[:, i], row, background + self._offset))
            for i, pool in enumerate(self._pool)
        ]
        return _BUILD[self._kind](self._names, columns)


def table_of(X: Any, names: Sequence[str] | None) -> Table:
    """Return rows by column.

    `X`: rows as for `hbtvm.Model.predict`, except sparse ones.
    `names`: the model's columns, which are the keys of dicts.
    Raises `InputError` if the rows are not a table.
    """
    kind = type(X).__module__.partition(".")[0]
    if kind == "pandas" and isinstance(X, sys.modules["pandas"].DataFrame):
        return Table(kind, tuple(X.columns), tuple(X.iloc[:, i].array for i in range(X.shape[1])), len(X))
    if kind == "polars" and isinstance(X, sys.modules["polars"].DataFrame):
        return Table(kind, tuple(X.columns), tuple(X.get_columns()), len(X))
    if kind == "pyarrow" and hasattr(X, "schema"):
        return Table(kind, tuple(X.schema.names), tuple(X.columns), X.num_rows)
    dicts = [X] if isinstance(X, Mapping) else X
    if isinstance(dicts, list | tuple) and dicts and all(isinstance(row, Mapping) for row in dicts):
        known = [name for name in names or dicts[0] if name in dicts[0]]
        return Table(
            "dict", tuple(known), tuple(_objects([row.get(k) for row in dicts]) for k in known), len(dicts)
        )
    try:
        array = np.asarray(X)
        if array.dtype.kind in "US" and not isinstance(X, np.ndarray):
            array = np.asarray(X, dtype=object)  # numpy would convert numbers beside strings
    except ValueError:
        array = np.empty(0)
    if array.ndim == 1 and isinstance(X, np.ndarray):
        array = array.reshape(-1, 1)
    if array.ndim != 2:
        raise InputError(
            f"expected rows as a table or an array of shape (n, columns), got a {type(X).__name__}."
        )
    return Table("array", None, tuple(array.T), len(array))


def _joined(kind: str, a: Any, b: Any) -> Any:
    """Return a column of the values of both, in the type of the first if that is a float."""
    if kind == "pandas":
        return _joined_pandas(a, b)
    if kind == "polars":
        polars = sys.modules["polars"]
        same = b.cast(a.dtype) if a.dtype.is_float() else b
        return polars.concat([a.to_frame("x"), same.to_frame("x")], how="vertical_relaxed").to_series()
    if kind == "pyarrow":
        arrow: Any = sys.modules["pyarrow"]
        wide = b.type if arrow.types.is_integer(a.type) and arrow.types.is_floating(b.type) else a.type
        parts = [part for x in (a, b) for part in getattr(x.cast(wide), "chunks", [x.cast(wide)])]
        return arrow.chunked_array(parts, wide)
    dtype = a.dtype if a.dtype.kind == "f" and b.dtype.kind in NUMBERS else None
    return np.concatenate([a, b if dtype is None else b.astype(dtype)])


def _joined_pandas(a: Any, b: Any) -> Any:
    pandas = sys.modules["pandas"]
    categorical = pandas.CategoricalDtype
    if isinstance(a.dtype, categorical) and a.dtype != b.dtype:
        other = b.categories if isinstance(b.dtype, categorical) else pandas.unique(pandas.Series(b).dropna())
        categories = [*a.categories, *(value for value in other if value not in a.categories)]
        kind = categorical(categories, a.dtype.ordered)
        a, b = a.astype(kind), pandas.Series(b).astype(kind).array
    elif a.dtype.kind == "f" and b.dtype.kind in NUMBERS:
        b = b.astype(a.dtype)
    return pandas.concat([pandas.Series(a), pandas.Series(b)], ignore_index=True).array


def _taken(kind: str, column: Any, at: np.ndarray) -> Any:
    if kind == "polars":
        return column.gather(at)
    if kind == "pyarrow":
        return column.take(sys.modules["pyarrow"].array(at))
    return column.take(at)


def _pandas(names: Any, columns: list[Any]) -> Any:
    frame = sys.modules["pandas"].DataFrame(dict(enumerate(columns)), copy=False)
    frame.columns = names
    return frame


def _dicts(names: Any, columns: list[Any]) -> list[dict[str, Any]]:
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


_BUILD: dict[str, Callable[[Any, list[Any]], Any]] = {
    "pandas": _pandas,
    "polars": lambda names, columns: sys.modules["polars"].DataFrame(columns, schema=list(names)),
    "pyarrow": lambda names, columns: sys.modules["pyarrow"].table(columns, names=list(names)),
    "dict": _dicts,
    "array": lambda names, columns: np.stack(columns, axis=1),
}
"""From names and columns to rows of the library."""

_WHAT = {"pandas": "pandas", "polars": "polars", "pyarrow": "pyarrow", "dict": "dicts", "array": "numpy"}


def _shown(kind: str, column: Any) -> np.ndarray:
    """Return a column as numbers or objects."""
    if kind == "pyarrow":
        number = sys.modules["pyarrow"].types
        if (number.is_integer(column.type) and not column.null_count) or number.is_floating(column.type):
            return np.asarray(column)
        return _objects(column.to_pylist())
    if kind == "polars":
        return np.asarray(column.to_numpy()) if column.dtype.is_numeric() else _objects(column.to_list())
    array = np.asarray(column)
    if array.dtype.kind != "O":
        return array if array.dtype.kind in NUMBERS else array.astype(object)
    try:
        # Numbers, as a list of dicts or a nullable column holds them; None is a missing one.
        if all(value is None or isinstance(value, int | float) for value in array.tolist()):
            return array.astype(np.float64)
    except (TypeError, ValueError):
        pass
    return array


def _objects(values: list[Any]) -> np.ndarray:
    array = np.empty(len(values), object)
    array[:] = values
    return array
