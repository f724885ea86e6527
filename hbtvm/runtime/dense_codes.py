"""Codes of whole arrays of numbers, where the categories of each column are integers close together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hbtvm.runtime.coder import Coder


class DenseCodes:
    """Looks up the codes of all columns at a time.

    Parameters
    ----------
    coders
        By column of the matrix, 0 to the last.
    """

    def __init__(self, coders: Mapping[int, Coder]) -> None:
        self._coders = [coders[j] for j in range(len(coders))]
        self._tables: dict[np.dtype, _Tables | None] = {}

    def matrix(self, rows: np.ndarray, columns: Sequence[int], dtype: np.dtype) -> np.ndarray | None:
        """Return the codes in some columns of rows, of a type, shape (n, columns).

        None where some column's categories are others, or a value is refused, which the coder has to say.
        """
        if rows.dtype.kind not in "iuf" or rows.dtype.itemsize > 8 or rows.dtype == np.uint64:
            return None
        if rows.dtype not in self._tables:
            found = [coder.dense(rows.dtype) for coder in self._coders]
            known = [one for one in found if one is not None]
            self._tables[rows.dtype] = _Tables(known) if len(known) == len(found) else None
        tables = self._tables[rows.dtype]
        if tables is None:
            return None
        x = rows if list(columns) == list(range(rows.shape[1])) else rows[:, list(columns)]
        with np.errstate(invalid="ignore"):
            whole = x.astype(np.int64)
        away = whole - tables.low
        if x.dtype.kind == "f":
            # NaN and fractions are none of the integers, nor is what int64 does not hold.
            away[whole != x] = -1
        # What lies below the first one wraps around to a large number.
        places = np.minimum(away.view(np.uint64), tables.last).view(np.int64)
        places += tables.first
        codes = tables.entries[places]
        if x.dtype.kind == "f":
            nan = np.isnan(x)
            if nan.any():
                codes = np.where(nan, tables.nan, codes)
        if any(coder.refuses for coder in self._coders) and (codes == tables.refused).any():
            return None
        result: np.ndarray = codes.astype(dtype)
        return result


class _Tables:
    """The columns' tables one behind the other."""

    def __init__(self, found: Sequence[tuple[int, np.ndarray, int, int]]) -> None:
        self.low = np.array([low for low, *_ in found])
        sizes = [len(table) for _, table, *_ in found]
        self.last = np.array([size - 1 for size in sizes], np.uint64)
        self.first = np.cumsum([0, *sizes[:-1]])
        self.entries = np.concatenate([table for _, table, *_ in found])
        self.nan = np.array([nan for *_, nan, _ in found])
        self.refused = np.array([refused for *_, refused in found])
