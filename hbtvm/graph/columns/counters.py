"""`Counters`: columns that CatBoost computes from categories: one-hot columns, and counters by hashes.

A counter is a number for a combination of *elements*: a category's hash, or whether a column is above, or is,
some number. With a combination's elements e₁, e₂, ..., its hash is hᵢ = m (hᵢ₋₁ + m eᵢ), with h₀ = 0, in 64
bits. A table has the hashes of all combinations that training had; others have a number of their own.

All tables are looked up together: numpy then takes a few calls, however many tables there are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from hbtvm.graph.columns.table import RowOperation, Table

HASH, ABOVE, EQUAL = 0, 1, 2
"""Kinds of elements: a column as it is; whether it is above a number; whether it is the number."""

MULTIPLIER = np.uint64(0x4906BA494954CB65)
_BLOCK = 1 << 16  # hashes that are looked up together, so that they stay in the cache


class Slots(NamedTuple):
    """The places of hashes by their first bits."""

    shift: np.ndarray  # uint64, shape (T, 1): the bits of a table's hashes that do not choose a slot
    base: np.ndarray  # uint64, shape (T, 1): the first slot of a table
    place: np.ndarray  # int64: the first hash of each slot; the number of all hashes if there is none
    hashes: np.ndarray  # uint64: all hashes, and 0
    most: int  # hashes of the fullest slot


@dataclass(frozen=True, eq=False)
class Counters(RowOperation):
    """One-hot columns, and behind them the columns of C counters in T tables."""

    inputs: Table  # hashes of categories (`HashText`), and numbers in float32
    # `test`, `column`, `number`: the elements: int32, int32 (columns of `inputs`) and float64, shape (E,)
    test: np.ndarray
    column: np.ndarray
    number: np.ndarray
    hot: np.ndarray  # int32, shape (one-hot columns,): elements that are results
    # Int32, shape (T, elements of the longest combination): the elements of a table's combination, counted
    # from 1. Zeros in front stand for none.
    elements: np.ndarray
    start: np.ndarray  # int64, shape (T + 1,): the first of a table's hashes
    hashes: np.ndarray  # uint64: of each table, ascending
    table: np.ndarray  # int32, shape (C,): the table of each counter
    values: np.ndarray  # float32: of each counter, one for each hash of its table, and one for other hashes

    @property
    def width(self) -> int:  # type: ignore[override]
        """Number of columns."""
        return len(self.hot) + len(self.table)

    def validate(self) -> None:
        """Raise `ValueError` if the arrays do not fit each other."""
        types = {
            "int32": (self.test, self.column, self.hot, self.table, self.elements),
            "int64": (self.start,),
            "uint64": (self.hashes,),
            "float32": (self.values,),
            "float64": (self.number,),
        }
        if any(array.dtype != kind for kind, arrays in types.items() for array in arrays):
            raise ValueError("arrays of counters have wrong types")
        if any(array.ndim != 1 + (array is self.elements) for arrays in types.values() for array in arrays):
            raise ValueError("arrays of counters have wrong shapes")
        tables, count = len(self.elements), len(self.test)
        if not len(self.column) == len(self.number) == count or len(self.start) != tables + 1:
            raise ValueError("arrays of counters have wrong lengths")
        bounds: Sequence[tuple[np.ndarray, int]] = (
            (self.test, 3),
            (self.column, len(self.inputs)),
            (self.hot, count),
            (self.table, tables),
            (self.elements, count + 1),
        )
        for array, most in bounds:
            if array.size and not 0 <= int(array.min()) <= int(array.max()) < most:
                raise ValueError(f"a counter refers to one of {most} that is absent")
        sizes = np.diff(self.start)
        if self.start[0] != 0 or np.any(sizes < 0):
            raise ValueError("tables of counters overlap")
        if self.start[-1] != len(self.hashes) or len(self.values) != np.sum(sizes[self.table] + 1):
            raise ValueError("tables of counters have other lengths")
        ascending = np.append(self.hashes[1:] > self.hashes[:-1], True)
        ascending[self.start[1:][sizes > 0] - 1] = True
        if not ascending.all():
            raise ValueError("hashes of counters are not ascending")

    @cached_property
    def _slots(self) -> Slots:
        sizes, total = np.diff(self.start), len(self.hashes)
        bits = np.array([(4 * size | 1).bit_length() for size in sizes.tolist()], np.int64)
        base = np.concatenate([[0], np.cumsum(1 << bits)])
        shift, first = (64 - bits).astype(np.uint64), base[:-1].astype(np.uint64)
        owner = np.repeat(np.arange(len(sizes)), sizes)
        slot = ((self.hashes >> shift[owner]) + first[owner]).astype(np.int64)
        place = np.full(int(base[-1]), total)
        place[slot[::-1]] = np.arange(total - 1, -1, -1)
        most = int(np.bincount(slot).max(initial=0)) if total else 0
        return Slots(shift[:, None], first[:, None], place, np.append(self.hashes, np.uint64(0)), most)

    @cached_property
    def _value_start(self) -> np.ndarray:
        """The first value of each counter less its table's first hash, int64, shape (C, 1)."""
        sizes = np.diff(self.start)[self.table] + 1
        result: np.ndarray = (np.cumsum(sizes) - sizes)[:, None]
        return result

    def reference(self, x: np.ndarray) -> np.ndarray:
        """Return the columns, float32, shape (n, `width`)."""
        out: np.ndarray = np.empty((self.width, len(x)), np.float32)
        rows = max(1, _BLOCK // max(len(self.elements), 1))
        for first in range(0, len(x), rows):
            self._block(x[first : first + rows].T, out[:, first : first + rows])
        result: np.ndarray = out.T
        return result

    def _block(self, x: np.ndarray, out: np.ndarray) -> None:
        """Write the columns, shape (width, n), for rows of shape (inputs, n)."""
        elements = np.zeros((len(self.test) + 1, x.shape[1]), np.uint64)
        values, number = x[self.column], self.number[:, None]
        hashed, above, equal = (self.test == test for test in (HASH, ABOVE, EQUAL))
        elements[1:][hashed] = values[hashed].astype(np.int64).view(np.uint64)
        elements[1:][above] = values[above] > number[above]
        elements[1:][equal] = values[equal] == number[equal]
        out[: len(self.hot)] = elements[1 + self.hot]
        if len(self.elements):
            place = self._places(elements)
            at = place.take(self.table, axis=0)
            at += self._value_start
            out[len(self.hot) :] = self.values.take(at, mode="clip")

    def _places(self, elements: np.ndarray) -> np.ndarray:
        """Return the places of combinations in their tables, int64, shape (T, n); others' at the end."""
        elements *= MULTIPLIER
        hashed: np.ndarray = np.zeros((len(self.elements), elements.shape[1]), np.uint64)
        for column in self.elements.T:
            hashed += elements.take(column, axis=0)
            hashed *= MULTIPLIER
        slots, total = self._slots, len(self.hashes)
        slot = hashed >> slots.shift
        slot += slots.base
        # All places are within bounds; "clip" skips numpy's check.
        place = slots.place.take(slot.view(np.int64), mode="clip")
        known = slots.hashes
        other = np.flatnonzero((known.take(place, mode="clip") != hashed) & (place < total))
        place, hashed = place.reshape(-1), hashed.reshape(-1)
        for _ in range(slots.most):
            # Hashes of the same slot follow each other.
            place[other] += 1
            other = other[(place[other] < total) & (known[place[other]] != hashed[other])]
        place[other] = total
        places: np.ndarray = place.reshape(len(self.elements), -1)
        places -= self.start[:-1, None]
        # Hashes that are absent, or of a later table, are at the end.
        np.minimum(places, np.diff(self.start)[:, None], out=places)
        return places
