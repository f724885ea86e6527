"""The exact part of a search for the k nearest points (see `hbtvm.strategies.network.nearest`).

What a tensor expression cannot say is how many blocks of points a row has to look at. The loop over the rows of a vector that a
schedule annotates (`hbtvm.schedules.network_nearest.NEAREST_ROWS`) becomes, in terms of these rows::

    bound = k-th smallest of the blocks' leasts + slack
    for block: if any row has least <= bound: for those rows:
        distances of the block's points in float64
        for those below the k-th smallest so far: insert

Points come in their order, and only smaller ones move others on, so that of equal distances the first points stay.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm_ffi
from tvm import tirx

from hbtvm.strategies.exact import exact

_MOST_SORTED = 16
"""Smallest leasts that are kept in registers; for more of them, a bound is found by halving."""

_HALVINGS = 16
"""Steps of it; the bound is then above the k-th smallest least by 2**-16 of their range at most."""

_FARTHEST = float(np.finfo(np.float64).max)
"""Stands for infinite distances while points are compared: less than infinity, which stands for no point."""

_TOGETHER = 8
"""Vectors of distances that are summed together."""


def find_nearest(loop: Any) -> Any:
    """Return what replaces an annotated loop of a lowered function.

    It is ``for row: for output: found[.., output, row] = nearest(..)``, with unit steps from one row to the next in all
    that is computed by rows.
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
    places = [_Place(load.source, start(load.indices)) for load in loads]
    k, points, features, size, blocks, rows, lanes = numbers
    return _Search(
        _Place(store.buffer, start(store.indices)),
        *places,
        k,
        points,
        features,
        size,
        blocks,
        rows,
        int(loop.extent),
        min(lanes, size),
    ).statement()


@dataclass(frozen=True)
class _Place:
    """Where something begins in a flat buffer."""

    buffer: Any
    start: Any

    def load(self, offset: Any, lanes: int = 1) -> Any:
        return tirx.BufferLoad(self.buffer, [_span(self.start + offset, lanes)])

    def store(self, value: Any, offset: Any, lanes: int = 1) -> Any:
        return tirx.BufferStore(self.buffer, value, [_span(self.start + offset, lanes)])


@dataclass(frozen=True)
class _Search:
    found: _Place
    least: _Place
    slack: _Place
    row: _Place
    points: _Place
    k: int
    count: int
    features: int
    size: int
    blocks: int
    rows: int
    together: int
    """Rows."""
    lanes: int

    def statement(self) -> Any:
        bound = _scratch("bound", self.together, "float32")
        empty = [
            self.found.store(_every(value, "float64", self.together), n * self.rows, self.together)
            for n, value in enumerate([math.inf] * self.k + [0.0] * self.k)
        ]
        smallest = self._sorted(bound) if self.k <= _MOST_SORTED else self._halved(bound)
        look = _for("block", self.blocks, lambda block: self._block(block, bound))
        return _sequence([*bound.made(), *smallest, *empty, look, *map(self._infinite, range(self.k))])

    def _infinite(self, entry: int) -> Any:
        """Put infinity for what stood for it."""
        n = self.together
        found, most = self.found.load(entry * self.rows, n), _every(_FARTHEST, "float64", n)
        return self.found.store(
            tirx.Select(found < most, found, _every(math.inf, "float64", n)), entry * self.rows, n
        )

    def _leasts(self, block: Any) -> Any:
        return self.least.load(block * self.rows, self.together)

    def _sorted(self, bound: _Scratch) -> list[Any]:
        """The k smallest leasts of each row, in order, to which each block's is added."""
        n = self.together
        kept = _scratch("smallest", self.k * n, "float32")

        def add(block: Any) -> Any:
            value = tirx.Var("least", _type("float32", n))
            steps = [tirx.Bind(value, self._leasts(block))]
            for place in range(self.k):
                old, more = tirx.Var("old", _type("float32", n)), tirx.Var("more", _type("float32", n))
                less = value < old
                steps += [
                    tirx.Bind(old, kept.load(place * n, n)),
                    tirx.Bind(more, tirx.Select(less, old, value)),
                    kept.store(tirx.Select(less, value, old), place * n, n),
                ]
                value = more
            return _sequence(steps)

        infinite = _every(math.inf, "float32", n)
        return [
            *kept.made(),
            *(kept.store(infinite, place * n, n) for place in range(self.k)),
            _for("block", self.blocks, add),
            self._bounded(kept.load((self.k - 1) * n, n), bound),
        ]

    def _halved(self, bound: _Scratch) -> list[Any]:
        """A bound with at least k leasts, where there are as many: halving between the smallest and the largest."""
        n = self.together
        # Low, high, and the number of leasts up to the middle.
        low, high, most = (_scratch(name, n, "float32") for name in ("low", "high", "most"))
        infinite = _every(math.inf, "float32", n)
        middle = tirx.Var("middle", _type("float32", n))

        def widen(block: Any) -> Any:
            value = tirx.Var("least", _type("float32", n))
            # Blocks without points have infinite leasts, which are no bounds to halve from.
            finite = value < infinite
            return _sequence(
                [
                    tirx.Bind(value, self._leasts(block)),
                    low.store(tirx.Select(value < low.load(0, n), value, low.load(0, n)), 0, n),
                    high.store(
                        tirx.Select(tirx.And(finite, value > high.load(0, n)), value, high.load(0, n)), 0, n
                    ),
                    most.store(
                        most.load(0, n)
                        + tirx.Select(finite, _every(1, "float32", n), _every(0, "float32", n)),
                        0,
                        n,
                    ),
                ]
            )

        def tally(block: Any) -> Any:
            more = tirx.Select(
                self._leasts(block) <= middle, _every(1, "float32", n), _every(0, "float32", n)
            )
            return most.store(most.load(0, n) + more, 0, n)

        def halve(_: Any) -> Any:
            enough = most.load(0, n) >= _every(self.k, "float32", n)
            half = _every(0.5, "float32", n)
            return _sequence(
                [
                    tirx.Bind(middle, low.load(0, n) * half + high.load(0, n) * half),
                    most.store(_every(0, "float32", n), 0, n),
                    _for("block", self.blocks, tally),
                    high.store(tirx.Select(enough, middle, high.load(0, n)), 0, n),
                    low.store(tirx.Select(enough, low.load(0, n), middle), 0, n),
                ]
            )

        return [
            *low.made(),
            *high.made(),
            *most.made(),
            low.store(infinite, 0, n),
            high.store(_every(-math.inf, "float32", n), 0, n),
            most.store(_every(0, "float32", n), 0, n),
            _for("block", self.blocks, widen),
            # Too few blocks to tell: all of them.
            tirx.BufferStore(
                high.buffer,
                tirx.Select(most.load(0, n) >= _every(self.k, "float32", n), high.load(0, n), infinite),
                [_span(0, n)],
            ),
            _for("step", _HALVINGS, halve),
            self._bounded(high.load(0, n), bound),
        ]

    def _bounded(self, least: Any, bound: _Scratch) -> Any:
        n = self.together
        slack, infinite = self.slack.load(0, n), _every(math.inf, "float32", n)
        # A least may be -inf or NaN where slack is infinite.
        return bound.store(tirx.Select(slack < infinite, least + slack, infinite), 0, n)

    def _block(self, block: Any, bound: _Scratch) -> Any:
        """Look at a block for those rows that may have some of their nearest in it."""
        n = self.together

        def one(row: Any) -> Any:
            passes = _passes(self.least.load(block * self.rows + row), bound.load(row), 1)
            return tirx.IfThenElse(passes, self._exact(block, row), None)

        if n == 1:
            return one(tirx.const(0, "int64"))
        passes = _passes(self._leasts(block), bound.load(0, n), n)
        return tirx.IfThenElse(_any(passes, n), _for("row", n, one), None)

    def _exact(self, block: Any, row: Any) -> Any:
        lanes = self.lanes
        vectors = min(_TOGETHER, self.size // lanes)
        part = vectors * lanes
        return _for("part", self.size // part, lambda first: self._part(block, row, first * part, vectors))

    def _part(self, block: Any, row: Any, first: Any, vectors: int) -> Any:
        """Distances of some of a block's points to a row, and what they change."""
        lanes = self.lanes
        # Sums of their own, at constant places, stay in registers; memory is looked up by what data say.
        sums, away = (_scratch(name, vectors * lanes, "float64") for name in ("sums", "away"))
        kind = _type("float64", lanes)

        def add(feature: Any) -> Any:
            number = tirx.Var("number", "float64")
            steps = [tirx.Bind(number, self.row.load(feature * self.rows + row))]
            at = (block * self.features + feature) * self.size + first
            for v in range(vectors):
                difference = tirx.Var("difference", kind)
                steps += [
                    tirx.Bind(
                        difference, _broadcast(number, lanes) - self.points.load(at + v * lanes, lanes)
                    ),
                    # Rounded as in scikit-learn's trees, so that what is equal there is equal here.
                    sums.store(
                        sums.load(v * lanes, lanes) + exact(difference * difference), v * lanes, lanes
                    ),
                ]
            return _sequence(steps)

        def look(vector: Any) -> Any:
            own = tirx.Var("own", kind)
            at = vector * lanes

            def candidate(lane: Any) -> Any:
                return self._candidate(row, away.load(at + lane), block * self.size + first + at + lane)

            worst = _broadcast(self.found.load((self.k - 1) * self.rows + row), lanes)
            return _sequence(
                [
                    tirx.Bind(own, away.load(at, lanes)),
                    tirx.IfThenElse(_any(own < worst, lanes), _for("lane", lanes, candidate), None),
                ]
            )

        def known(v: int) -> Any:
            total, most = sums.load(v * lanes, lanes), _every(_FARTHEST, "float64", lanes)
            # NaN, too, is as far as anything can be.
            return away.store(tirx.Select(total < most, total, most), v * lanes, lanes)

        zeros = [sums.store(_every(0.0, "float64", lanes), v * lanes, lanes) for v in range(vectors)]
        return _sequence(
            [
                *sums.made(),
                *away.made(),
                *zeros,
                _for("feature", self.features, add),
                *map(known, range(vectors)),
                _for("vector", vectors, look),
            ]
        )

    def _candidate(self, row: Any, away: Any, point: Any) -> Any:
        """Insert a point if it is nearer than the k-th nearest so far."""
        own = tirx.Var("distance", "float64")
        place = _scratch("place", 1, "int64")

        def entry(n: Any) -> Any:
            return n * self.rows + row

        def move(n: Any) -> Any:
            here = tirx.Var("here", "int64")
            behind = self.k * self.rows
            return _sequence(
                [
                    tirx.Bind(here, n),
                    self.found.store(self.found.load(entry(here - 1)), entry(here)),
                    self.found.store(self.found.load(entry(here - 1) + behind), entry(here) + behind),
                    place.store(here - 1, 0),
                ]
            )

        before = place.load(0)
        ahead = tirx.if_then_else(before > 0, self.found.load(entry(before - 1)), _every(-1.0, "float64", 1))
        insert = _sequence(
            [
                *place.made(),
                place.store(tirx.const(self.k - 1, "int64"), 0),
                tirx.While(ahead > own, move(before)),
                self.found.store(own, entry(before)),
                self.found.store(point.astype("float64"), entry(before) + self.k * self.rows),
            ]
        )
        worst = self.found.load(entry(self.k - 1))
        return _sequence(
            [
                tirx.Bind(own, away),
                tirx.IfThenElse(tirx.And(own < worst, point < self.count), insert, None),
            ]
        )


class _Scratch(_Place):
    """A small array of the function's own."""

    def made(self) -> list[Any]:
        return [tirx.AllocBuffer(self.buffer)]


def _scratch(name: str, count: int, dtype: str) -> _Scratch:
    return _Scratch(tirx.decl_buffer((count,), dtype, name, scope="local"), tirx.const(0, "int64"))


def _type(dtype: str, lanes: int) -> str:
    return dtype if lanes == 1 else f"{dtype}x{lanes}"


def _span(start: Any, lanes: int) -> Any:
    return start if lanes == 1 else tirx.Ramp(start, tirx.const(1, "int64"), lanes)


def _broadcast(value: Any, lanes: int) -> Any:
    return value if lanes == 1 else tirx.Broadcast(value, lanes)


def _every(value: float, dtype: str, lanes: int) -> Any:
    return _broadcast(tirx.const(value, dtype), lanes)


def _passes(least: Any, bound: Any, lanes: int) -> Any:
    """Whether a block with a least may hold some of the nearest; any may where the bound is infinite."""
    return tirx.Or(least <= bound, bound >= _every(math.inf, "float32", lanes))


def _any(condition: Any, lanes: int) -> Any:
    """Whether a condition holds in some lane."""
    if lanes == 1:
        return condition
    ones = tirx.Select(condition, _every(1, "int32", lanes), _every(0, "int32", lanes))
    return tirx.call_llvm_pure_intrin("int32", "llvm.vector.reduce.or", ones) != tirx.const(0, "int32")


def _for(name: str, extent: int, body: Callable[[Any], Any]) -> Any:
    variable = tirx.Var(name, "int64")
    zero, count = tirx.const(0, "int64"), tirx.const(extent, "int64")
    return tirx.For(variable, zero, count, tirx.ForKind.SERIAL, body(variable))


def _sequence(steps: Sequence[Any]) -> Any:
    return tirx.SeqStmt(list(steps)) if len(steps) > 1 else steps[0]
