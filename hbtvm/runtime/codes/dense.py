"""Codes of arrays of numbers, if each column's categories are integers close together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hbtvm.runtime.codes.coder import Coder

_BLOCK = 1 << 14
"""Numbers looked up at a time, so that intermediate results stay in the cache."""

_NARROW = 1 << 30  # categories up to this magnitude are looked up in int32


class DenseCodes:
    """Looks up all columns' codes together, or a number for each code.

    `coders`: by column of the result.
    `entries`: by column, the number for each code, unknown values' last; by default the code.
    """

    def __init__(self, coders: Sequence[Coder], entries: Sequence[np.ndarray] | None = None) -> None:
        self._coders, self._entries = coders, entries
        self._tables: dict[tuple[np.dtype, np.dtype], _Tables | None] = {}

    def matrix(self, rows: np.ndarray, columns: Sequence[int], dtype: np.dtype) -> np.ndarray | None:
        """Return the numbers for the values in some columns of rows, shape (n, columns).

        None if a column's categories are not dense, or a value is refused; the coder then raises the error.
        """
        key = rows.dtype, dtype
        if key not in self._tables:
            self._tables[key] = self._tables_for(*key)
        tables = self._tables[key]
        if tables is None:
            return None
        x = rows if list(columns) == list(range(rows.shape[1])) else rows[:, list(columns)]
        out = np.empty(x.shape, dtype)
        step = tables.rows
        with np.errstate(invalid="ignore"):
            for start in range(0, len(x), step):
                part = x[start : start + step].reshape(-1)
                if not tables.fill(part, out[start : start + step].reshape(-1)):
                    return None
        return out

    def _tables_for(self, source: np.dtype, dtype: np.dtype) -> _Tables | None:
        if source.kind not in "iuf" or source in (np.uint64, np.float16) or source.itemsize > 8:
            return None
        tables = [coder.dense(source) for coder in self._coders]
        known = [table for table in tables if table is not None]
        return _Tables(known, self._entries, source, dtype) if len(known) == len(tables) else None


class _Tables:
    """The columns' concatenated tables: entries of the categories, of other values, and of NaN.

    `tables`: results of `Coder.dense`.
    `entries`: see `DenseCodes`.
    `source`, `dtype`: types of the values and of the entries.
    `rows`: most rows of a call of `fill`.
    """

    def __init__(
        self,
        tables: Sequence[tuple[int, np.ndarray, int, int]],
        entries: Sequence[np.ndarray] | None,
        source: np.dtype,
        dtype: np.dtype,
    ) -> None:
        lows, sizes = [low for low, *_ in tables], [len(table) - 1 for _, table, *_ in tables]
        codes = [np.append(table, nan) for _, table, nan, _ in tables]
        values = codes
        if entries is not None:
            values = [entry[code] for entry, code in zip(entries, codes, strict=True)]
        narrow = all(-_NARROW < low < low + size < _NARROW for low, size in zip(lows, sizes, strict=True))
        # int32 does not hold all values of other types.
        small = source.kind == "f" or source.itemsize < 4 or source == np.int32
        self._kind: Any = np.int32 if narrow and small else np.int64
        self._unsigned: Any = np.uint32 if self._kind is np.int32 else np.uint64
        self._float = source.kind == "f"
        self.rows = max(1, _BLOCK // len(tables))

        def tiled(values: Sequence[int], kind: Any) -> np.ndarray:
            # Repeated for all rows: numpy is many times slower on rows of a few columns.
            return np.tile(np.array(values).astype(kind), self.rows)

        self._low, self._size = tiled(lows, self._kind), tiled(sizes, self._unsigned)
        starts = np.cumsum([0, *(len(entries) for entries in codes[:-1])]).tolist()
        self._first = tiled(starts, np.intp)
        self._nan_at = tiled([start + size + 1 for start, size in zip(starts, sizes, strict=True)], np.intp)
        self._own_nan = self._float and any(nan != table[-1] for _, table, nan, _ in tables)
        self._entries = np.concatenate(values).astype(dtype)
        refused = [code == table[3] for code, table in zip(codes, tables, strict=True)]
        self._refused = np.concatenate(refused) if any(bad.any() for bad in refused) else None
        # If codes are the values plus a constant, no lookup is needed.
        whole = [
            size > 0 and np.array_equal(entries[:size], entries[0] + np.arange(size))
            for entries, size in zip(values, sizes, strict=True)
        ]
        holes = any(bad[:size].any() for bad, size in zip(refused, sizes, strict=True))
        self._base = (
            tiled([entries[0] for entries in values], self._kind) if all(whole) and not holes else None
        )

    def fill(self, x: np.ndarray, out: np.ndarray) -> bool:
        """Look up the values of some rows, flattened; return False if a value is refused."""
        n = len(x)
        whole = x.astype(self._kind)
        away = whole - self._low[:n]
        fractional = None
        if self._float:
            # NaN, fractions and values beyond the type equal no integer.
            fractional = whole.astype(x.dtype) != x
            if np.count_nonzero(fractional):
                away[fractional] = -1
            else:
                fractional = None
        # Values below the first wrap around to large numbers.
        places, size = away.view(self._unsigned), self._size[:n]
        if self._base is not None and np.count_nonzero(places < size) == n:
            np.add(away, self._base[:n], out=out, casting="unsafe")
            return True
        at = np.minimum(places, size).astype(np.intp)
        at += self._first[:n]
        if self._own_nan and fractional is not None:
            nan = np.isnan(x)
            at[nan] = self._nan_at[:n][nan]
        if self._refused is not None and self._refused.take(at).any():
            return False
        self._entries.take(at, out=out, mode="clip")
        return True
