"""Bounds on blocks' leasts, which select the blocks of points that a row searches for its nearest.

At least k blocks' leasts are within the bound minus the slack, so no point of a block beyond it is among the
k nearest (see `hbtvm.strategies.network.nearest`). The k-th smallest least gives the best such bound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from hbtvm.schedules.statements import Place, Scratch, scratch, sequence, serial, splat, vector_type

_MOST_SORTED = 16
"""Most leasts that are sorted in registers; for more, bisection computes a bound."""

_HALVINGS = 16
"""Steps of the bisection: the bound exceeds the k-th smallest least by at most 2**-16 of the range."""


@dataclass(frozen=True)
class Leasts:
    """Least approximate distances of blocks to the rows of a vector."""

    # `least`, `slack`: their starts: float32, shapes (blocks, rows) and (rows,)
    least: Place
    slack: Place
    # `k`, `blocks`: number of requested nearest, and of blocks
    k: int
    blocks: int
    # `rows`, `vector`: rows of a tile, and of a vector
    rows: int
    vector: int

    def at(self, block: Any) -> Any:
        """Return the leasts of a block."""
        return self.least.load(block * self.rows, self.vector)

    def bound(self, bound: Scratch) -> list[Any]:
        """Return statements that store the rows' bounds."""
        if self.vector == 1:
            return self._inserted(bound)
        return self._sorted(bound) if self.k <= _MOST_SORTED else self._halved(bound)

    def some_pass(self, block: Any, bound: Scratch) -> Any:
        """Return whether any row has to search a block; every block if the bound is infinite."""
        return _within(self.at(block), bound.load(0, self.vector), self.vector)

    def passes(self, block: Any, row: Any, bound: Scratch) -> Any:
        """Return whether a row of the vector has to search a block."""
        return _within(self.least.load(block * self.rows + row), bound.load(row), 1)

    def _inserted(self, bound: Scratch) -> list[Any]:
        """Insert a single row's leasts into its sorted k smallest; few blocks change them."""
        kept, place = scratch("smallest", self.k, "float32"), scratch("place", 1, "int64")

        def add(block: Any) -> Any:
            value, here = tirx.Var("least", "float32"), tirx.Var("here", "int64")
            before = place.load(0)
            nothing = tirx.const(-math.inf, "float32")
            previous = tirx.if_then_else(before > 0, kept.load(before - 1), nothing)
            move = sequence(
                [
                    tirx.Bind(here, before),
                    kept.store(kept.load(here - 1), here),
                    place.store(here - 1, 0),
                ]
            )
            insert = sequence(
                [
                    place.store(tirx.const(self.k - 1, "int64"), 0),
                    tirx.While(previous > value, move),
                    kept.store(value, before),
                ]
            )
            return sequence(
                [
                    tirx.Bind(value, self.least.load(block)),
                    tirx.IfThenElse(value < kept.load(self.k - 1), insert, None),
                ]
            )

        empty = serial("entry", self.k, lambda entry: kept.store(tirx.const(math.inf, "float32"), entry))
        return [
            *kept.allocation(),
            *place.allocation(),
            empty,
            serial("block", self.blocks, add),
            self._bounded(kept.load(self.k - 1), bound),
        ]

    def _sorted(self, bound: Scratch) -> list[Any]:
        """Sort each row's k smallest leasts in registers."""
        n = self.vector
        # Stored, because TVM would repeat a bound expression at each use of its variable.
        kept, moved = scratch("smallest", self.k * n, "float32"), scratch("moved", n, "float32")

        def add(block: Any) -> Any:
            steps = [moved.store(self.at(block), 0, n)]
            for place in range(self.k):
                old, new = (tirx.Var(name, vector_type("float32", n)) for name in ("old", "new"))
                steps += [
                    tirx.Bind(old, kept.load(place * n, n)),
                    tirx.Bind(new, moved.load(0, n)),
                    moved.store(tirx.Select(new < old, old, new), 0, n),
                    kept.store(tirx.Select(new < old, new, old), place * n, n),
                ]
            return sequence(steps)

        infinite = splat(math.inf, "float32", n)
        return [
            *kept.allocation(),
            *moved.allocation(),
            *(kept.store(infinite, place * n, n) for place in range(self.k)),
            serial("block", self.blocks, add),
            self._bounded(kept.load((self.k - 1) * n, n), bound),
        ]

    def _halved(self, bound: Scratch) -> list[Any]:
        """Compute a bound of at least k leasts by bisection between the smallest and the largest."""
        n = self.vector
        # Low, high, and the number of leasts up to the middle.
        low, high, most = (scratch(name, n, "float32") for name in ("low", "high", "most"))
        infinite = splat(math.inf, "float32", n)
        middle = tirx.Var("middle", vector_type("float32", n))
        count, one, none = (splat(value, "float32", n) for value in (self.k, 1, 0))

        def widen(block: Any) -> Any:
            value = tirx.Var("least", vector_type("float32", n))
            # Blocks without points have infinite leasts, from which bisection can't start.
            finite = value < infinite
            return sequence(
                [
                    tirx.Bind(value, self.at(block)),
                    low.store(tirx.Select(value < low.load(0, n), value, low.load(0, n)), 0, n),
                    high.store(
                        tirx.Select(tirx.And(finite, value > high.load(0, n)), value, high.load(0, n)), 0, n
                    ),
                    most.store(
                        most.load(0, n) + tirx.Select(finite, one, none),
                        0,
                        n,
                    ),
                ]
            )

        def tally(block: Any) -> Any:
            more = tirx.Select(self.at(block) <= middle, one, none)
            return most.store(most.load(0, n) + more, 0, n)

        def halve(_: Any) -> Any:
            enough = most.load(0, n) >= count
            half = splat(0.5, "float32", n)
            return sequence(
                [
                    tirx.Bind(middle, low.load(0, n) * half + high.load(0, n) * half),
                    most.store(none, 0, n),
                    serial("block", self.blocks, tally),
                    high.store(tirx.Select(enough, middle, high.load(0, n)), 0, n),
                    low.store(tirx.Select(enough, low.load(0, n), middle), 0, n),
                ]
            )

        return [
            *low.allocation(),
            *high.allocation(),
            *most.allocation(),
            low.store(infinite, 0, n),
            high.store(splat(-math.inf, "float32", n), 0, n),
            most.store(none, 0, n),
            serial("block", self.blocks, widen),
            # Too few blocks for a bound: search all.
            high.store(tirx.Select(most.load(0, n) >= count, high.load(0, n), infinite), 0, n),
            serial("step", _HALVINGS, halve),
            self._bounded(high.load(0, n), bound),
        ]

    def _bounded(self, least: Any, bound: Scratch) -> Any:
        n = self.vector
        slack, infinite = self.slack.load(0, n), splat(math.inf, "float32", n)
        # A least may be -inf or NaN if the slack is infinite.
        return bound.store(tirx.Select(slack < infinite, least + slack, infinite), 0, n)


def _within(least: Any, bound: Any, lanes: int) -> Any:
    return tirx.Or(least <= bound, bound >= splat(math.inf, "float32", lanes))
