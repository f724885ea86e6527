"""Read the columns of pandas, polars and pyarrow tables.

This module imports none of these libraries: an object of a library shows that it is loaded.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

import numpy as np

from hbtvm.runtime.rows.arrow_column import check_arrow

NUMBERS = "fiub"  # kinds of numpy types that hold real numbers


@dataclass(frozen=True)
class Column:
    """The type and values of a column."""

    type_name: str  # the library's name of the type, for errors
    # Shape (n,): numbers, NaN if missing; or positions in `levels`, -1 if missing; None for other columns
    values: np.ndarray | None
    levels: tuple[Any, ...] | None = None  # the distinct values of a column of categories or strings
    categorical: bool = False  # whether the column has its library's type of categories

    def numbers(self) -> np.ndarray | None:
        """Return the values if they are numbers or categories that are numbers; else None."""
        if self.levels is None:
            return self.values
        plain = _of_levels(self.type_name, self.values, self.levels)
        return plain.values if plain.levels is None else None


@dataclass(frozen=True)
class Frame:
    """The names and columns of a data frame."""

    names: tuple[str, ...] | None  # column names; None if they are not strings
    columns: tuple[Column, ...]  # the columns; empty if `matrix` holds them
    matrix: np.ndarray | None = None  # shape (n, columns): the values of a frame that has only numbers


def read_frame(X: Any) -> Frame | None:
    """Return the columns of a pandas, polars or pyarrow table; None for other objects.

    Raises `TypeError` for a table whose values are not computed yet (polars' LazyFrame).
    """
    module = type(X).__module__.partition(".")[0]
    if module == "pandas" and isinstance(X, sys.modules["pandas"].DataFrame):
        return _pandas(X)
    if module == "polars":
        polars = sys.modules["polars"]
        if isinstance(X, polars.LazyFrame):
            raise TypeError("a polars LazyFrame; collect() it first")
        if isinstance(X, polars.DataFrame):
            columns = tuple(_polars_column(polars, X.to_series(i)) for i in range(X.width))
            return Frame(tuple(X.columns), columns)
    if module == "pyarrow":
        arrow = sys.modules["pyarrow"]
        if isinstance(X, (arrow.Table, arrow.RecordBatch)):
            columns = tuple(_arrow_column(arrow, X.column(i)) for i in range(X.num_columns))
            return Frame(tuple(X.schema.names), columns)
    return None


def object_columns(array: np.ndarray) -> tuple[Column, ...]:
    """Return the columns of a two-dimensional array of Python objects or strings."""
    return tuple(object_column(array[:, i].tolist()) for i in range(array.shape[1]))


def _pandas(X: Any) -> Frame:
    names = tuple(X.columns)
    # As in scikit-learn, names that are not strings count as positions, and are not compared.
    named = tuple(map(str, names)) if all(isinstance(name, str) for name in names) else None
    dtypes = set(X.dtypes)
    if dtypes and all(isinstance(dtype, np.dtype) and dtype.kind in NUMBERS for dtype in dtypes):
        return Frame(named, (), X.to_numpy(dtype=np.result_type(*dtypes)))
    return Frame(named, tuple(_pandas_column(X.iloc[:, i]) for i in range(X.shape[1])))


def _pandas_column(column: Any) -> Column:
    pandas = sys.modules["pandas"]
    dtype, name = column.dtype, str(column.dtype)
    if isinstance(dtype, pandas.CategoricalDtype):
        return Column(name, column.cat.codes.to_numpy(), tuple(column.cat.categories.tolist()), True)
    types = pandas.api.types
    if types.is_object_dtype(dtype) or types.is_string_dtype(dtype):
        codes, levels = pandas.factorize(column)
        return _of_levels(name, codes, tuple(levels.tolist()))
    is_real = types.is_numeric_dtype(dtype) and not types.is_complex_dtype(dtype)
    if is_real or types.is_bool_dtype(dtype):
        if isinstance(dtype, np.dtype):
            return Column(name, column.to_numpy())
        # Nullable and Arrow-backed types; their missing value becomes NaN.
        return Column(name, column.to_numpy(dtype=np.float64, na_value=np.nan))
    return Column(name, None)


def _polars_column(polars: Any, column: Any) -> Column:
    name = str(column.dtype)
    kind = column.dtype
    if kind == polars.Boolean:
        return Column(name, column.cast(polars.UInt8).to_numpy())
    if kind.is_numeric():
        wide = kind.is_decimal() or name in ("Int128", "UInt128")
        return Column(name, (column.cast(polars.Float64) if wide else column).to_numpy())
    if kind == polars.String:
        return object_column(column.to_list(), name)
    if kind in (polars.Categorical, polars.Enum):
        return object_column(column.cast(polars.String).to_list(), name, True)
    return Column(name, None)


def _arrow_column(arrow: Any, column: Any) -> Column:
    kind, name = column.type, str(column.type)
    check_arrow(column)
    is_kind = arrow.types
    if is_kind.is_boolean(kind):
        column = column.cast("uint8")
    elif is_kind.is_decimal(kind):
        column = column.cast("float64")
    elif is_kind.is_dictionary(kind) or name in ("string", "large_string", "string_view"):
        return object_column(column.to_pylist(), name, is_kind.is_dictionary(kind))
    elif not (is_kind.is_integer(kind) or is_kind.is_floating(kind)):
        return Column(name, None)
    if isinstance(column, arrow.ChunkedArray):
        return Column(name, column.to_numpy())
    return Column(name, column.to_numpy(zero_copy_only=False))


def object_column(values: Any, type_name: str = "object", categorical: bool = False) -> Column:
    """Return a column of Python values: numbers, or (categories always) positions in the distinct values."""
    levels: dict[Any, int] = {}
    codes = np.empty(len(values), np.int64)
    try:
        for row, value in enumerate(values):
            # NaN and the like are not equal to themselves.
            missing = value is None or not bool(value == value)
            codes[row] = -1 if missing else levels.setdefault(value, len(levels))
    except Exception:  # from a value's class
        return Column(type_name, None)
    if categorical:
        return Column(type_name, codes, tuple(levels), True)
    return _of_levels(type_name, codes, tuple(levels))


def _of_levels(type_name: str, codes: Any, levels: tuple[Any, ...]) -> Column:
    """Return a column of levels; where all levels are numbers, a column of numbers."""
    if not all(isinstance(level, (int, float, np.integer, np.floating, np.bool_)) for level in levels):
        return Column(type_name, codes, levels)
    try:
        numbers = np.array([*map(float, levels), np.nan])
    except Exception:
        return Column(type_name, None)
    return Column(type_name, numbers[codes])
