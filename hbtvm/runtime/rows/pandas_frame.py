"""A pandas data frame, read from its blocks: asking pandas for a column takes as long as predicting a row.

The blocks are not part of pandas' public interface, which serves as the fallback.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from hbtvm.runtime.rows.arrow_column import arrow_column
from hbtvm.runtime.rows.frames import NUMBERS
from hbtvm.runtime.rows.raw import Levels, Numbers, Objects, RawColumn, Times, Unreadable, Values

_EXACT = 1 << 53
_NARROW = ("halffloat[pyarrow]", "float[pyarrow]")


class PandasFrame:
    """A pandas.DataFrame; see `hbtvm.runtime.rows.containers.Container`.

    `rows`, `width`: numbers of rows and columns.
    `index`: the index of the columns.
    """

    def __init__(self, frame: Any) -> None:
        self._frame = frame
        self.rows, self.width = frame.shape
        self.index = frame.columns
        self._blocks = _blocks(frame)

    @property
    def names(self) -> tuple[str, ...] | None:
        """The columns' names; None if they are not strings and so count as positions."""
        try:
            names = self.index.array.__arrow_array__().to_pylist()
        except (AttributeError, TypeError, ValueError, ImportError):
            names = self.index.tolist()
        return tuple(map(str, names)) if all(isinstance(name, str) for name in names) else None

    def column(self, at: int, null: Any) -> RawColumn:
        """Return a column. pandas has a missing value for each type; `null` is not used."""
        if self._blocks is None:
            return column_of(self._frame.iloc[:, at].array)
        arrays, number, place = self._blocks
        values = arrays[number[at]]
        if type(values) is np.ndarray:
            return _of_numpy(values[place[at]])
        # A block of dates holds several columns.
        return column_of(values if values.ndim == 1 else values[place[at]])

    def numbers(self) -> np.ndarray | None:
        if self._blocks is None or len(self._blocks[0]) != 1:
            return None
        values = self._blocks[0][0]
        if type(values) is not np.ndarray or values.dtype.kind not in NUMBERS:
            return None
        # The columns of a block may lie in any order.
        place = self._blocks[2]
        numbers: np.ndarray = values.T if place == sorted(place) else values.T[:, place]
        return numbers

    def has_small(self) -> bool:
        """Whether there are columns of bool or int8, whose common type depends on the others."""
        return self._blocks is None or any(
            type(values) is np.ndarray and values.dtype.char in "b?" for values in self._blocks[0]
        )

    def row(self, at: Sequence[int], nulls: Sequence[Any]) -> list[Any] | None:
        """Return Python values of the only row's columns; None if the columns' types matter."""
        if self._blocks is None:
            return None
        arrays, number, place = self._blocks
        categorical = sys.modules["pandas"].Categorical
        row: list[Any] = []
        for i in at:
            values = arrays[number[i]]
            if type(values) is np.ndarray:
                if values.dtype.char not in "dlOqib?":
                    return None
                row.append(values.item(place[i], 0))
                continue
            if type(values) is categorical:
                row.append(_first_level(values))
                continue
            try:
                value = values._pa_array[0].as_py()
            except AttributeError:
                return None
            if value is not None and type(value) is not str:
                return None
            row.append(np.nan if value is None else value)
        return row


def _first_level(values: Any) -> Any:
    """Return the first value of a Categorical; pandas takes ten times as long."""
    try:
        at, levels = values._codes.item(0), values._dtype.categories._values
        if at >= 0 and type(levels) is np.ndarray and levels.dtype.char in "dlOq?":
            return levels.item(at)
        if at >= 0 and type(value := levels._pa_array[at].as_py()) is str:
            return value
    except AttributeError:
        pass
    return values[0]


def _blocks(frame: Any) -> tuple[list[Any], list[int], list[int]] | None:
    """Return the arrays of a frame's blocks, and each column's block and position in it."""
    try:
        manager = frame._mgr
        arrays = [block.values for block in manager.blocks]
        number, place = manager.blknos.tolist(), manager.blklocs.tolist()
    except AttributeError:
        return None
    return (arrays, number, place) if len(number) == frame.shape[1] else None


def column_of(values: Any) -> RawColumn:
    """Return a pandas array of any type as a column."""
    pandas = sys.modules["pandas"]
    dtype = values.dtype
    if isinstance(dtype, np.dtype):
        return _of_numpy(values.to_numpy())
    if isinstance(dtype, pandas.CategoricalDtype):
        categories = values.categories
        return Levels(values.codes, categories, categories.tolist, np.nan)
    if hasattr(values, "_pa_array") or isinstance(dtype, pandas.ArrowDtype):
        # An object with Arrow's arrays has loaded pyarrow.
        column = arrow_column(values.__arrow_array__(), np.nan)
        # scikit-learn converts pandas' float types to float64.
        return Numbers(column.raw().astype(np.float64)) if str(dtype) in _NARROW else column
    if isinstance(dtype, pandas.StringDtype):
        return Values(values.to_numpy(dtype=object, na_value=np.nan).tolist())
    if isinstance(dtype, pandas.DatetimeTZDtype):
        return Times(values.astype(object), str(dtype))
    types = pandas.api.types
    if types.is_bool_dtype(dtype) or (types.is_numeric_dtype(dtype) and not types.is_complex_dtype(dtype)):
        return _of_nullable(values)
    return Unreadable(str(dtype))


def _of_numpy(values: np.ndarray) -> RawColumn:
    values = values.reshape(-1)
    if values.dtype.kind in NUMBERS:
        return Numbers(values)
    if values.dtype.kind == "M":
        return Times(values, str(values.dtype))
    return Objects(values) if values.dtype.kind == "O" else Unreadable(str(values.dtype))


def _of_nullable(values: Any) -> RawColumn:
    """Return a nullable array as numbers, with NaN for pandas' missing value."""
    dtype = getattr(values.dtype, "numpy_dtype", np.dtype(np.float64))
    if dtype.kind != "f" and not values.isna().any():
        return Numbers(values.to_numpy(dtype=dtype))
    if dtype.kind in "iu":
        numbers = values.to_numpy(dtype=np.float64, na_value=np.nan)
        if np.nanmax(np.abs(numbers), initial=0) < _EXACT:
            return Numbers(numbers)
        return Values([np.nan if value is sys.modules["pandas"].NA else value for value in values.tolist()])
    return Numbers(values.to_numpy(dtype=np.float64, na_value=np.nan))
