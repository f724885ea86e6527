"""Functions of single columns that tables describe: `Bucketize`, `Interpolate`, `Lookup`, `OneHot`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from hbtvm.operators.base import Node, Unary


def ragged(rows: Sequence[np.ndarray], fill: float | None = None) -> np.ndarray:
    """Return rows of different lengths as a matrix, padded by a number or (None) by each row's last."""
    most = max(1, *(len(row) for row in rows))
    out = np.empty((len(rows), most))
    for i, row in enumerate(rows):
        out[i, : len(row)] = row
        out[i, len(row) :] = row[-1] if fill is None else fill
    return out


@dataclass(frozen=True, eq=False)
class Bucketize(Unary):
    """The number of a column's edges below a value (``"left"``), or at most it (``"right"``).

    `x`: width F; NaN is above all edges.
    """

    edges: np.ndarray  # float64, shape (F, E), each row ascending; +inf where a column has fewer
    side: Literal["left", "right"] = "right"  # as in ``numpy.searchsorted``
    kind = "bucketize"

    @property
    def width(self) -> int:
        return len(self.edges)

    def attributes(self) -> dict[str, Any]:
        return {"side": self.side}

    def tables(self) -> dict[str, np.ndarray]:
        return {"edges": self.edges}

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        columns = [
            np.searchsorted(edges, x, self.side) for edges, x in zip(self.edges, inputs[0].T, strict=True)
        ]
        return np.asarray(np.ascontiguousarray(np.array(columns, np.float64).T))


@dataclass(frozen=True, eq=False)
class Interpolate(Unary):
    """Straight lines between a column's points, level beyond them, as ``numpy.interp``; NaN stays.

    `x`: width F.
    """

    # `at`, `values`: float64, shapes (F, E): each row of `at` ascends (equal points make a jump), and is
    # padded by its last point
    at: np.ndarray
    values: np.ndarray
    kind = "interpolate"

    @property
    def width(self) -> int:
        return len(self.at)

    def tables(self) -> dict[str, np.ndarray]:
        return {"at": self.at, "values": self.values}

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        columns = zip(inputs[0].T, self.at, self.values, strict=True)
        return np.asarray(np.array([np.interp(x, at, values) for x, at, values in columns]).T)


@dataclass(frozen=True, eq=False)
class Lookup(Unary):
    """A number for each code: column o is ``entries[first[o] + x[column[o]]]``.

    `x`: codes, whole numbers from 0; codes beyond a table are moved to its nearer end.
    """

    column: np.ndarray  # int32, shape (O,): columns of x
    # `first`, `last`: int32, shape (O,): each table's first entry, and its largest code
    first: np.ndarray
    last: np.ndarray
    entries: np.ndarray  # float64, shape (E,): all tables
    kind = "lookup"

    @property
    def width(self) -> int:
        return len(self.column)

    def tables(self) -> dict[str, np.ndarray]:
        return {"column": self.column, "first": self.first, "last": self.last, "entries": self.entries}

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        codes = np.clip(np.nan_to_num(inputs[0][:, self.column]), 0, self.last).astype(np.int64)
        return np.asarray(self.entries[self.first + codes])


def lookup(x: Node, column: Sequence[int], tables: Sequence[np.ndarray]) -> Lookup:
    """Return a `Lookup` with a table for each output."""
    sizes = [len(table) for table in tables]
    first = np.cumsum([0, *sizes])[:-1]
    return Lookup(
        x,
        np.asarray(column, np.int32),
        first.astype(np.int32),
        (np.array(sizes) - 1).astype(np.int32),
        np.concatenate(list(tables)).astype(np.float64),
    )


@dataclass(frozen=True, eq=False)
class OneHot(Unary):
    """1 if a column of x has a value, else 0: column o is ``x[column[o]] == value[o]``.

    `x`: codes.
    """

    # `column`, `value`: int32 and float64, shape (O,)
    column: np.ndarray
    value: np.ndarray
    kind = "one_hot"

    @property
    def width(self) -> int:
        return len(self.column)

    def tables(self) -> dict[str, np.ndarray]:
        return {"column": self.column, "value": self.value}

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        return np.asarray(inputs[0][:, self.column] == self.value, np.float64)
