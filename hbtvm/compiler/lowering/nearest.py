"""The exact part of a search for the k nearest points (see `hbtvm.strategies.network.nearest`).

What a tensor expression cannot say is how many blocks of points a row has to look at. The loop over the rows
of a vector that a schedule annotates (`hbtvm.schedules.network_nearest.NEAREST_ROWS`) becomes::

    bound = k-th smallest of the blocks' leasts + slack     (see `nearest_bounds`)
    for block: if any row has least <= bound: for those rows:
        distances of the block's points in float64
        for those below the k-th smallest so far: insert

Points come in their order, and only nearer ones move others on: of equal distances the first points stay.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm_ffi
from tvm import tirx

from hbtvm.compiler.lowering.nearest_bounds import Leasts
from hbtvm.compiler.lowering.statements import (
    Place,
    Scratch,
    any_lane,
    broadcast,
    every,
    scratch,
    sequence,
    serial,
    vector_type,
)
from hbtvm.strategies.exact import exact

_FARTHEST = float(np.finfo(np.float64).max)
"""Stands for infinite distances while points are compared: less than infinity, which stands for no point."""

_TOGETHER = 8
"""Vectors of distances that are summed together."""


def find_nearest(loop: Any) -> Any:
    """Return what replaces an annotated loop of a lowered function.

    It is ``for row: for output: found[.., output, row] = nearest(..)``, with unit steps from one row to the
    next in all that is computed by rows.
    """
    inner = loop.body
    store = inner.body
    call = store.value
    values = {loop.loop_var: 0, inner.loop_var: 0}

    def start(indices: Sequence[Any]) -> Any:
        (index,) = indices

        def put(variable: Any) -> Any:
            return tirx.const(0, str(variable.ty.dtype)) if variable in values else variable

        return tvm_ffi.structural_map(index, (tirx.Var, put)).astype("int64")

    # The first argument is the function's name.
    loads, numbers = call.args[1:5], [int(one.value) for one in call.args[5:]]
    least, slack, row, points = (Place(load.source, start(load.indices)) for load in loads)
    k, count, features, size, blocks, rows, lanes = numbers
    return _Search(
        Leasts(least, slack, k, blocks, rows, int(loop.extent)),
        Place(store.buffer, start(store.indices)),
        row,
        points,
        count,
        features,
        size,
        min(lanes, size),
    ).statement()


@dataclass(frozen=True)
class _Search:
    """The search of a vector of rows.

    Attributes
    ----------
    leasts
        What tells which blocks to look at.
    found
        Where distances of the nearest begin, and behind them their positions: float64, shape (2k, rows).
    row, points
        Where the rows' numbers begin, shape (features, rows), and the points', (blocks, features, size).
    count, features, size
        Points, their columns, and points of a block.
    lanes
        Points of a vector.
    """

    leasts: Leasts
    found: Place
    row: Place
    points: Place
    count: int
    features: int
    size: int
    lanes: int

    @property
    def k(self) -> int:
        return self.leasts.k

    @property
    def rows(self) -> int:
        return self.leasts.rows

    def statement(self) -> Any:
        """All of it."""
        n = self.leasts.vector
        bound = scratch("bound", n, "float32")
        empty = [
            self.found.store(every(value, "float64", n), entry * self.rows, n)
            for entry, value in enumerate([math.inf] * self.k + [0.0] * self.k)
        ]
        look = serial("block", self.leasts.blocks, lambda block: self._block(block, bound))
        infinite = map(self._infinite, range(self.k))
        return sequence([*bound.made(), *self.leasts.bound(bound), *empty, look, *infinite])

    def _infinite(self, entry: int) -> Any:
        """Put infinity for what stood for it."""
        n = self.leasts.vector
        found, most = self.found.load(entry * self.rows, n), every(_FARTHEST, "float64", n)
        chosen = tirx.Select(found < most, found, every(math.inf, "float64", n))
        return self.found.store(chosen, entry * self.rows, n)

    def _block(self, block: Any, bound: Scratch) -> Any:
        """Look at a block for those rows that may have some of their nearest in it."""

        def one(row: Any) -> Any:
            return tirx.IfThenElse(self.leasts.passes(block, row, bound), self._exact(block, row), None)

        n = self.leasts.vector
        if n == 1:
            return one(tirx.const(0, "int64"))
        return tirx.IfThenElse(any_lane(self.leasts.some_pass(block, bound), n), serial("row", n, one), None)

    def _exact(self, block: Any, row: Any) -> Any:
        lanes = self.lanes
        vectors = min(_TOGETHER, self.size // lanes)
        part = vectors * lanes
        return serial("part", self.size // part, lambda first: self._part(block, row, first * part, vectors))

    def _part(self, block: Any, row: Any, first: Any, vectors: int) -> Any:
        """Distances of some of a block's points to a row, and what they change."""
        lanes = self.lanes
        # Sums of their own, at constant places, stay in registers; memory is looked up by what data say.
        sums, away = (scratch(name, vectors * lanes, "float64") for name in ("sums", "away"))
        kind = vector_type("float64", lanes)

        def add(feature: Any) -> Any:
            number = tirx.Var("number", "float64")
            steps = [tirx.Bind(number, self.row.load(feature * self.rows + row))]
            at = (block * self.features + feature) * self.size + first
            for v in range(vectors):
                difference = tirx.Var("difference", kind)
                steps += [
                    tirx.Bind(difference, broadcast(number, lanes) - self.points.load(at + v * lanes, lanes)),
                    # Rounded as in scikit-learn's trees, so that what is equal there is equal here.
                    sums.store(
                        sums.load(v * lanes, lanes) + exact(difference * difference), v * lanes, lanes
                    ),
                ]
            return sequence(steps)

        def look(vector: Any) -> Any:
            own = tirx.Var("own", kind)
            at = vector * lanes

            def candidate(lane: Any) -> Any:
                return self._candidate(row, away.load(at + lane), block * self.size + first + at + lane)

            worst = broadcast(self.found.load((self.k - 1) * self.rows + row), lanes)
            return sequence(
                [
                    tirx.Bind(own, away.load(at, lanes)),
                    tirx.IfThenElse(any_lane(own < worst, lanes), serial("lane", lanes, candidate), None),
                ]
            )

        def known(v: int) -> Any:
            total, most = sums.load(v * lanes, lanes), every(_FARTHEST, "float64", lanes)
            # NaN, too, is as far as anything can be.
            return away.store(tirx.Select(total < most, total, most), v * lanes, lanes)

        zeros = [sums.store(every(0.0, "float64", lanes), v * lanes, lanes) for v in range(vectors)]
        return sequence(
            [
                *sums.made(),
                *away.made(),
                *zeros,
                serial("feature", self.features, add),
                *map(known, range(vectors)),
                serial("vector", vectors, look),
            ]
        )

    def _candidate(self, row: Any, away: Any, point: Any) -> Any:
        """Insert a point if it is nearer than the k-th nearest so far."""
        own = tirx.Var("distance", "float64")
        place = scratch("place", 1, "int64")

        def entry(n: Any) -> Any:
            return n * self.rows + row

        def move(n: Any) -> Any:
            here = tirx.Var("here", "int64")
            behind = self.k * self.rows
            return sequence(
                [
                    tirx.Bind(here, n),
                    self.found.store(self.found.load(entry(here - 1)), entry(here)),
                    self.found.store(self.found.load(entry(here - 1) + behind), entry(here) + behind),
                    place.store(here - 1, 0),
                ]
            )

        before = place.load(0)
        ahead = tirx.if_then_else(before > 0, self.found.load(entry(before - 1)), every(-1.0, "float64", 1))
        insert = sequence(
            [
                *place.made(),
                place.store(tirx.const(self.k - 1, "int64"), 0),
                tirx.While(ahead > own, move(before)),
                self.found.store(own, entry(before)),
                self.found.store(point.astype("float64"), entry(before) + self.k * self.rows),
            ]
        )
        worst = self.found.load(entry(self.k - 1))
        return sequence(
            [
                tirx.Bind(own, away),
                tirx.IfThenElse(tirx.And(own < worst, point < self.count), insert, None),
            ]
        )
