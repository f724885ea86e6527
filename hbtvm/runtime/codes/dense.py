"""Codes of whole arrays of numbers, where the categories of each column are integers close together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hbtvm.runtime.codes.coder import Coder

_BLOCK = 1 << 14
"""Numbers that are looked up at a time, so that what is computed in between stays in the cache."""

_NARROW = 1 << 30  # categories up to this magnitude are looked up in int32


class DenseCodes:
    """Looks up the codes of all columns at a time, or a number that stands for each code.

    `coders`: by column of the result.
    `entries`: by column, what stands for each code, that of unknown values included (the last); by default
        the code.
    """

    def __init__(self, coders: Sequence[Coder], entries: Sequence[np.ndarray] | None = None) -> None:
        self._coders, self._entries = coders, entries
        self._tables: dict[tuple[np.dtype, np.dtype], _Tables | None] = {}

    def matrix(self, rows: np.ndarray, columns: Sequence[int], dtype: np.dtype) -> np.ndarray | None:
        """Return what stands for the values in some columns of rows, of a type, shape (n, columns).

        None where some column's categories are others, or a value is refused, which the coder has to say.
        """
        key = rows.dtype, dtype
        if key not in self._tables:
            self._tables[key] = self._made(*key)
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

    def _made(self, given: np.dtype, dtype: np.dtype) -> _Tables | None:
        if given.kind not in "iuf" or given in (np.uint64, np.float16) or given.itemsize > 8:
            return None
        found = [coder.dense(given) for coder in self._coders]
        known = [one for one in found if one is not None]
        return _Tables(known, self._entries, given, dtype) if len(known) == len(found) else None


class _Tables:
    """The columns' tables one behind the other: of each category, of what is none, and of NaN.

    `found`: see `Coder.dense`.
    `entries`: see `DenseCodes`.
    `given`, `dtype`: the types of the values and of what stands for them.
    `rows`: rows that `fill` takes at most.
    """

    def __init__(
        self,
        found: Sequence[tuple[int, np.ndarray, int, int]],
        entries: Sequence[np.ndarray] | None,
        given: np.dtype,
        dtype: np.dtype,
    ) -> None:
        lows, sizes = [low for low, *_ in found], [len(table) - 1 for _, table, *_ in found]
        codes = [np.append(table, nan) for _, table, nan, _ in found]
        own = codes
        if entries is not None:
            own = [entry[code] for entry, code in zip(entries, codes, strict=True)]
        narrow = all(-_NARROW < low < low + size < _NARROW for low, size in zip(lows, sizes, strict=True))
        # Of other types, int32 does not hold all values.
        small = given.kind == "f" or given.itemsize < 4 or given == np.int32
        self._kind: Any = np.int32 if narrow and small else np.int64
        self._unsigned: Any = np.uint32 if self._kind is np.int32 else np.uint64
        self._float = given.kind == "f"
        self.rows = max(1, _BLOCK // len(found))

        def tiled(values: Sequence[int], kind: Any) -> np.ndarray:
            # Repeated for all rows, as numpy takes many times as long for rows of a few columns.
            return np.tile(np.array(values).astype(kind), self.rows)

        self._low, self._size = tiled(lows, self._kind), tiled(sizes, self._unsigned)
        starts = np.cumsum([0, *(len(one) for one in codes[:-1])]).tolist()
        self._first = tiled(starts, np.intp)
        self._nan_at = tiled([start + size + 1 for start, size in zip(starts, sizes, strict=True)], np.intp)
        self._own_nan = self._float and any(nan != table[-1] for _, table, nan, _ in found)
        self._entries = np.concatenate(own).astype(dtype)
        refused = [code == one[3] for code, one in zip(codes, found, strict=True)]
        self._refused = np.concatenate(refused) if any(one.any() for one in refused) else None
        # Where codes are the values but for a number that is added, none has to be looked up.
        whole = [
            size > 0 and np.array_equal(one[:size], one[0] + np.arange(size))
            for one, size in zip(own, sizes, strict=True)
        ]
        holes = any(bad[:size].any() for bad, size in zip(refused, sizes, strict=True))
        self._base = tiled([one[0] for one in own], self._kind) if all(whole) and not holes else None

    def fill(self, x: np.ndarray, out: np.ndarray) -> bool:
        """Look up the values of some rows, flat; return whether none is refused."""
        n = len(x)
        whole = x.astype(self._kind)
        away = whole - self._low[:n]
        odd = None
        if self._float:
            # NaN and fractions are none of the integers, nor is what the type does not hold.
            odd = whole.astype(x.dtype) != x
            if np.count_nonzero(odd):
                away[odd] = -1
            else:
                odd = None
        # What lies below the first one wraps around to a large number.
        places, size = away.view(self._unsigned), self._size[:n]
        if self._base is not None and np.count_nonzero(places < size) == n:
            np.add(away, self._base[:n], out=out, casting="unsafe")
            return True
        at = np.minimum(places, size).astype(np.intp)
        at += self._first[:n]
        if self._own_nan and odd is not None:
            nan = np.isnan(x)
            at[nan] = self._nan_at[:n][nan]
        if self._refused is not None and self._refused.take(at).any():
            return False
        self._entries.take(at, out=out, mode="clip")
        return True
