"""The k smallest values of each row of a vector, in order, with their positions.

Values are inserted in order, and displace only larger values, so the first of equal values stay.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import tirx

from hbtvm.schedules.statements import Place, scratch, sequence, splat

_LARGEST = float(np.finfo(np.float64).max)
"""Replaces infinity and NaN in comparisons, where infinity means no value."""


def comparable(value: Any, lanes: int) -> Any:
    """Return a value, or a vector, in a form less than infinity."""
    most = splat(_LARGEST, "float64", lanes)
    # A select, not a minimum: NaN must become the largest number.
    return tirx.Select(value < most, value, most)


@dataclass(frozen=True)
class Smallest:
    """The smallest values so far."""

    result: Place  # start of the values, then their positions: float64, shape (2k, rows)
    # `k`, `count`: number of requested values, and of all values; positions from `count` on are padding
    k: int
    count: int
    # `rows`, `vector`: rows of a tile, and of the vector
    rows: int
    vector: int

    def begin(self) -> list[Any]:
        """Return statements that clear the values."""
        return [
            self.result.store(splat(value, "float64", self.vector), entry * self.rows, self.vector)
            for entry, value in enumerate([math.inf] * self.k + [0.0] * self.k)
        ]

    def worst(self, row: Any, lanes: int = 1) -> Any:
        """Return the k-th smallest value so far of one or several rows."""
        return self.result.load((self.k - 1) * self.rows + row, lanes)

    def candidate(self, row: Any, value: Any, place: Any) -> Any:
        """Insert a `comparable` value below the k-th smallest so far, unless its position is padding."""
        variable = tirx.Var("value", "float64")
        free = scratch("free", 1, "int64")

        def entry(n: Any) -> Any:
            return n * self.rows + row

        def move(n: Any) -> Any:
            here = tirx.Var("here", "int64")
            behind = self.k * self.rows
            return sequence(
                [
                    tirx.Bind(here, n),
                    self.result.store(self.result.load(entry(here - 1)), entry(here)),
                    self.result.store(self.result.load(entry(here - 1) + behind), entry(here) + behind),
                    free.store(here - 1, 0),
                ]
            )

        before = free.load(0)
        previous = tirx.if_then_else(
            before > 0, self.result.load(entry(before - 1)), tirx.const(-math.inf, "float64")
        )
        insert = sequence(
            [
                *free.allocation(),
                free.store(tirx.const(self.k - 1, "int64"), 0),
                tirx.While(previous > variable, move(before)),
                self.result.store(variable, entry(before)),
                self.result.store(place.astype("float64"), entry(before) + self.k * self.rows),
            ]
        )
        return sequence(
            [
                tirx.Bind(variable, value),
                tirx.IfThenElse(tirx.And(variable < self.worst(row), place < self.count), insert, None),
            ]
        )

    def finish(self) -> list[Any]:
        """Return statements that restore infinity from its replacement."""
        n = self.vector

        def put(entry: int) -> Any:
            stored, infinite = self.result.load(entry * self.rows, n), splat(math.inf, "float64", n)
            chosen = tirx.Select(stored < splat(_LARGEST, "float64", n), stored, infinite)
            return self.result.store(chosen, entry * self.rows, n)

        return [put(entry) for entry in range(self.k)]
