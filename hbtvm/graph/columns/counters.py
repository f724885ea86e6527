"""`Counters`: columns that CatBoost computes from categories: one-hot columns, and counters by hashes.

A counter's row is found by a hash of the row's combination: hashes of categories, and results of
comparisons. All combinations that training had are in a table; others have a value of their own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from hbtvm import codec
from hbtvm.graph.columns.table import RowOperation, Table

_MULTIPLIER = np.uint64(0x4906BA494954CB65)


class Part(ABC):
    """Some of the columns of `Counters`."""

    width: int  # number of its columns

    @abstractmethod
    def check(self, width: int) -> None:
        """Raise `ValueError` if it does not fit, or reads other columns than the first `width`."""

    @abstractmethod
    def compute(self, x: np.ndarray, out: np.ndarray) -> None:
        """Write the columns, shape (n, `width`), for rows."""


@dataclass(frozen=True, eq=False)
class Equal(Part):
    """1 where a column is some number, else 0."""

    column: codec.Index
    values: tuple[int, ...]  # a result for each

    @property
    def width(self) -> int:  # type: ignore[override]
        """Number of results."""
        return len(self.values)

    def check(self, width: int) -> None:
        if self.column >= width:
            raise ValueError(f"column {self.column} of {width} is read")

    def compute(self, x: np.ndarray, out: np.ndarray) -> None:
        for i, value in enumerate(self.values):
            out[:, i] = x[:, self.column] == value


@dataclass(frozen=True, eq=False)
class HashTable(Part):
    """Numbers that a table has for a row's hash."""

    columns: tuple[codec.Index, ...]  # of hashes of categories, in the order in which they are hashed
    # `above`, `equal`: columns and numbers: whether the column is greater than, or is, the number
    above: tuple[tuple[codec.Index, float], ...]
    equal: tuple[tuple[codec.Index, int], ...]
    hashes: np.ndarray  # uint64, shape (H,), ascending
    values: np.ndarray  # float32, shape (H + 1, width): by hash; the last is that of other hashes

    @property
    def width(self) -> int:  # type: ignore[override]
        """Number of results."""
        return int(self.values.shape[1])

    def check(self, width: int) -> None:
        read = (*self.columns, *(column for column, _ in (*self.above, *self.equal)))
        if any(column >= width for column in read):
            raise ValueError(f"columns {read} of {width} are read")
        if self.hashes.dtype != np.uint64 or self.hashes.ndim != 1 or self.values.dtype != np.float32:
            raise ValueError("a table of hashes has wrong types")
        if self.values.ndim != 2 or len(self.values) != len(self.hashes) + 1:
            raise ValueError("a table of hashes has wrong shapes")
        if np.any(self.hashes[1:] <= self.hashes[:-1]):
            raise ValueError("hashes are not ascending")

    def compute(self, x: np.ndarray, out: np.ndarray) -> None:
        hashed = np.zeros(len(x), np.uint64)
        for column in self.columns:
            hashed = _combined(hashed, x[:, column].astype(np.int64).view(np.uint64))
        for column, border in self.above:
            hashed = _combined(hashed, (x[:, column] > border).astype(np.uint64))
        for column, value in self.equal:
            hashed = _combined(hashed, (x[:, column] == value).astype(np.uint64))
        out[...] = self.values[self._places(hashed)]

    @cached_property
    def _slots(self) -> tuple[np.uint64, np.ndarray]:
        """The first place of the hashes that begin with some bits, by these; H where there is none."""
        bits = max(len(self.hashes) * 4, 2).bit_length()
        shift = np.uint64(64 - bits)
        slots = np.full(1 << bits, len(self.hashes), np.int32)
        first = self.hashes >> shift
        slots[first[::-1].view(np.int64)] = np.arange(len(first) - 1, -1, -1, dtype=np.int32)
        return shift, slots

    def _places(self, hashed: np.ndarray) -> np.ndarray:
        """Return the places of hashes, or H."""
        count = len(self.hashes)
        shift, slots = self._slots
        place = slots[(hashed >> shift).view(np.int64)]
        if not count:
            return place
        # Mostly, a slot has one hash; others are searched for.
        other = np.flatnonzero((place < count) & (self.hashes[np.minimum(place, count - 1)] != hashed))
        if len(other):
            at = np.searchsorted(self.hashes, hashed[other])
            at[at == count] = 0
            place[other] = np.where(self.hashes[at] == hashed[other], at, count)
        return place


def _combined(hashed: np.ndarray, value: np.ndarray) -> np.ndarray:
    result: np.ndarray = _MULTIPLIER * (hashed + _MULTIPLIER * value)
    return result


@dataclass(frozen=True, eq=False)
class Counters(RowOperation):
    """The columns of all parts side by side."""

    inputs: Table  # hashes of categories (`HashText`), and numbers in float32
    parts: tuple[Part, ...]

    @property
    def width(self) -> int:  # type: ignore[override]
        """Number of columns."""
        return sum(part.width for part in self.parts)

    def validate(self) -> None:
        """Raise `ValueError` if a part does not fit the inputs."""
        for part in self.parts:
            part.check(len(self.inputs))

    def reference(self, x: np.ndarray) -> np.ndarray:
        out = np.empty((len(x), self.width))
        at = 0
        for part in self.parts:
            part.compute(x, out[:, at : at + part.width])
            at += part.width
        return out
