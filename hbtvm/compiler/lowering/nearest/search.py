"""The exact part of a search for the k nearest points (see `hbtvm.strategies.network.nearest`).

A tensor expression cannot express a data-dependent number of blocks of points. The loop over the rows of a
vector that a schedule annotates (`hbtvm.schedules.network.nearest.NEAREST_ROWS`) becomes::

    bound = k-th smallest of the blocks' leasts + slack     (see `bounds`)
    for block: if any row has least <= bound: for those rows:
        distances of the block's points in float64
        for those below the k-th smallest so far: insert

If all distances are computed already, each is compared with the k-th smallest so far.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from hbtvm.compiler.lowering.indices import index_at
from hbtvm.compiler.lowering.nearest.bounds import Leasts
from hbtvm.compiler.lowering.nearest.smallest import Smallest, comparable
from hbtvm.schedules.statements import (
    Place,
    Scratch,
    any_lane,
    broadcast,
    scratch,
    sequence,
    serial,
    splat,
    vector_type,
)
from hbtvm.strategies.intrinsics.exact import exact
from hbtvm.strategies.network.nearest import SMALLEST

_TOGETHER = 8  # vectors of distances summed together


def find_nearest(loop: Any) -> Any:
    """Return the replacement of an annotated loop of a lowered function.

    The loop is ``for row: for output: out[.., output, row] = nearest(..)``, with unit strides of rows.
    """
    inner = loop.body
    store = inner.body
    call = store.value
    values = {loop.loop_var: 0, inner.loop_var: 0}

    def start(indices: Sequence[Any]) -> Any:
        (index,) = indices
        return index_at(index, values)

    # The first argument is the function's name.
    name, *arguments = call.args
    places = [
        Place(argument.source, start(argument.indices))
        for argument in arguments
        if not isinstance(argument, tirx.IntImm)
    ]
    numbers = [int(argument.value) for argument in arguments if isinstance(argument, tirx.IntImm)]
    out, vector = Place(store.buffer, start(store.indices)), int(loop.extent)
    if str(name.value) == SMALLEST:
        k, count, rows, lanes = numbers
        return _Values(Smallest(out, k, count, rows, vector), places[0], lanes).statement()
    least, slack, row, points = places
    k, count, features, size, blocks, rows, lanes = numbers
    leasts = Leasts(least, slack, k, blocks, rows, vector)
    return _Search(
        Smallest(out, k, count, rows, vector), leasts, row, points, features, size, min(lanes, size)
    ).statement()


@dataclass(frozen=True)
class _Search:
    """The search of a vector of rows."""

    # `smallest`, `leasts`: the results, and the leasts that select blocks
    smallest: Smallest
    leasts: Leasts
    # `row`, `points`: starts of the rows' numbers, shape (features, rows), and the points', (blocks,
    # features, size)
    row: Place
    points: Place
    # `features`, `size`: columns, and points of a block
    features: int
    size: int
    lanes: int  # points of a vector

    def statement(self) -> Any:
        """Return the whole search."""
        bound = scratch("bound", self.leasts.vector, "float32")
        look = serial("block", self.leasts.blocks, lambda block: self._block(block, bound))
        return sequence(
            [
                *bound.allocation(),
                *self.leasts.bound(bound),
                *self.smallest.begin(),
                look,
                *self.smallest.finish(),
            ]
        )

    def _block(self, block: Any, bound: Scratch) -> Any:
        """Search a block for the rows that may have nearest points in it."""

        def search(row: Any) -> Any:
            return tirx.IfThenElse(self.leasts.passes(block, row, bound), self._exact(block, row), None)

        n = self.leasts.vector
        if n == 1:
            return search(tirx.const(0, "int64"))
        return tirx.IfThenElse(
            any_lane(self.leasts.some_pass(block, bound), n), serial("row", n, search), None
        )

    def _exact(self, block: Any, row: Any) -> Any:
        lanes = self.lanes
        vectors = min(_TOGETHER, self.size // lanes)
        part = vectors * lanes
        return serial("part", self.size // part, lambda first: self._part(block, row, first * part, vectors))

    def _part(self, block: Any, row: Any, first: Any, vectors: int) -> Any:
        """Compute distances of some of a block's points to a row, and insert them."""
        lanes = self.lanes
        # Separate sums at constant indices stay in registers; the memory is indexed by data.
        sums, away = (scratch(name, vectors * lanes, "float64") for name in ("sums", "away"))
        kind = vector_type("float64", lanes)

        def add(feature: Any) -> Any:
            number = tirx.Var("number", "float64")
            steps = [tirx.Bind(number, self.row.load(feature * self.leasts.rows + row))]
            at = (block * self.features + feature) * self.size + first
            for v in range(vectors):
                difference = tirx.Var("difference", kind)
                steps += [
                    tirx.Bind(difference, broadcast(number, lanes) - self.points.load(at + v * lanes, lanes)),
                    # Rounded as in scikit-learn's trees, so that equal distances there are equal here.
                    sums.store(
                        sums.load(v * lanes, lanes) + exact(difference * difference), v * lanes, lanes
                    ),
                ]
            return sequence(steps)

        def look(vector: Any) -> Any:
            variable = tirx.Var("own", kind)
            at = vector * lanes

            def candidate(lane: Any) -> Any:
                return self.smallest.candidate(
                    row, away.load(at + lane), block * self.size + first + at + lane
                )

            worst = broadcast(self.smallest.worst(row), lanes)
            return sequence(
                [
                    tirx.Bind(variable, away.load(at, lanes)),
                    tirx.IfThenElse(
                        any_lane(variable < worst, lanes), serial("lane", lanes, candidate), None
                    ),
                ]
            )

        def known(v: int) -> Any:
            return away.store(comparable(sums.load(v * lanes, lanes), lanes), v * lanes, lanes)

        zeros = [sums.store(splat(0.0, "float64", lanes), v * lanes, lanes) for v in range(vectors)]
        return sequence(
            [
                *sums.allocation(),
                *away.allocation(),
                *zeros,
                serial("feature", self.features, add),
                *map(known, range(vectors)),
                serial("vector", vectors, look),
            ]
        )


@dataclass(frozen=True)
class _Values:
    """A scan of all values, shape (count, rows), of a vector of rows."""

    smallest: Smallest
    values: Place
    lanes: int

    def statement(self) -> Any:
        """Return the whole search."""
        statements = self._of_one_row() if self.smallest.vector == 1 else self._of_rows()
        return sequence([*self.smallest.begin(), *statements, *self.smallest.finish()])

    def _of_rows(self) -> list[Any]:
        n, rows = self.smallest.vector, self.smallest.rows

        def look(place: Any) -> Any:
            def insert(row: Any) -> Any:
                value = comparable(self.values.load(place * rows + row), 1)
                return self.smallest.candidate(row, value, place)

            smaller = comparable(self.values.load(place * rows, n), n) < self.smallest.worst(0, n)
            return tirx.IfThenElse(any_lane(smaller, n), serial("row", n, insert), None)

        return [serial("place", self.smallest.count, look)]

    def _of_one_row(self) -> list[Any]:
        """Scan vectors of values, then the remaining values one by one."""
        lanes, row = self.lanes, tirx.const(0, "int64")
        vectors, left = divmod(self.smallest.count, lanes)

        def candidate(place: Any) -> Any:
            return self.smallest.candidate(row, comparable(self.values.load(place), 1), place)

        def look(vector: Any) -> Any:
            at = vector * lanes
            smaller = comparable(self.values.load(at, lanes), lanes) < broadcast(
                self.smallest.worst(row), lanes
            )
            return tirx.IfThenElse(
                any_lane(smaller, lanes), serial("lane", lanes, lambda lane: candidate(at + lane)), None
            )

        statements = [serial("vector", vectors, look)] if vectors else []
        return [
            *statements,
            *([serial("place", left, lambda n: candidate(n + vectors * lanes))] if left else []),
        ]
