"""The check of a tile's sums in float32: each output's bound of the error against its largest score.

See `hbtvm.strategies.network.rounded_sums` for the bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from tvm import tirx

from hbtvm.schedules.statements import Place, broadcast, scratch, sequence, serial, splat, vector_type
from hbtvm.strategies.network.product import segments
from hbtvm.strategies.network.rounded_sums import SHARE

_GROUP = 2  # rows whose squares are added before the largest is found: fewer comparisons, and a weaker bound
_RUNNING = 8  # vectors of columns that run on over rows: they stay in registers
_LARGEST, _SMALLEST = 1e18, 1e-18  # scores between which their squares neither overflow nor underflow


class Check:
    """The largest numbers of a tile by column, its largest scores by output, and their comparison.

    Parameters
    ----------
    features, outputs
        Numbers of a row and of its scores.
    lanes
        Most float32 numbers of a vector.
    block
        Rows that are looked at together.
    bound, slack
        Tables, shapes (features, padded outputs) and (padded outputs,).
    """

    def __init__(
        self, features: int, outputs: int, lanes: int, block: int, bound: Place, slack: Place
    ) -> None:
        self._features, self._outputs, self._lanes, self._block = features, outputs, lanes, block
        self._bound, self._slack = bound, slack
        # Vectors that run on over the rows of a block are never short if columns soon share lanes.
        period = lanes // math.gcd(lanes, features)
        runs_on = block % period == 0 and period * features <= _RUNNING * lanes
        self._period = period if runs_on else 1
        widths = segments(outputs, lanes)
        self._room = sum(widths)
        self._columns = [
            (start, scratch("columns", count, "float32"))
            for start, count in pieces(self._period * features, lanes)
        ]
        self._most = {start: scratch("most", count, "float32") for start, count in starts(widths)}

    @property
    def vectors(self) -> list[tuple[int, int]]:
        """First output and lanes of each vector of outputs."""
        return [(start, lanes_of(most)) for start, most in self._most.items()]

    def begin(self) -> list[Any]:
        """Return the statements before a tile's first block."""
        steps: list[Any] = []
        for start, most in self._most.items():
            steps += [*most.allocation(), most.store(self._padding(start, lanes_of(most)), 0, lanes_of(most))]
        for _, largest in self._columns:
            zero = splat(0.0, "float32", lanes_of(largest))
            steps += [*largest.allocation(), largest.store(zero, 0, lanes_of(largest))]
        return steps

    def _padding(self, start: int, lanes: int) -> Any:
        """Return a vector that is 0 in lanes of outputs and 1 beyond, where no error matters."""
        places = tirx.Ramp(tirx.const(start, "int32"), tirx.const(1, "int32"), lanes)
        inside = places < tirx.Broadcast(tirx.const(self._outputs, "int32"), lanes)
        return tirx.Select(inside, splat(0.0, "float32", lanes), splat(1.0, "float32", lanes))

    def note_rows(self, rows: Sequence[Place]) -> list[Any]:
        """Return the statements that note the largest numbers of a block's rows, which follow each other."""
        steps: list[Any] = []
        for start, largest in self._columns:
            values = [row.load(start, lanes_of(largest)) for row in rows[:: self._period]]
            steps += _keep_largest(values, _GROUP, largest)
        return steps

    def note_scores(self, start: int, scores: Sequence[Any]) -> list[Any]:
        """Return the statements that note the largest scores of a block, for a vector of outputs."""
        return _keep_largest(scores, self._group, self._most[start])

    @property
    def _group(self) -> int:
        return math.gcd(_GROUP, self._block)

    def end(self, failed: Any, otherwise: Any) -> list[Any]:
        """Return the statements after a tile's last block.

        If an output may be too far off, they set `failed` to 1 and run `otherwise`.
        """
        largest = scratch("largest", self._features, "float32")
        doubtful = scratch("doubtful", 1, "int32")
        steps = [*largest.allocation(), *doubtful.allocation(), doubtful.store(tirx.const(0, "int32"), 0)]
        steps += self._roots(largest)
        for start, most in self._most.items():
            lanes = lanes_of(most)
            error = scratch("error", lanes, "float32")
            steps += [
                *error.allocation(),
                error.store(self._slack.load(start, lanes), 0, lanes),
                *self._add_bound(largest, error, start, lanes),
                # A lower bound of the largest score.
                _compare(
                    tirx.sqrt(most.load(0, lanes) * splat(1 / self._group, "float32", lanes)),
                    error.load(0, lanes),
                    doubtful,
                    lanes,
                ),
            ]
        again = sequence([failed.store(tirx.const(1, "int32"), 0), otherwise])
        return [*steps, tirx.IfThenElse(doubtful.load(0) != tirx.const(0, "int32"), again, None)]

    def _roots(self, largest: Any) -> list[Any]:
        """Return the statements that store the largest number of each column."""
        squares = scratch("squares", self._period * self._features, "float32")
        steps = squares.allocation()
        for start, vector in self._columns:
            steps.append(squares.store(vector.load(0, lanes_of(vector)), start, lanes_of(vector)))
        for start, lanes in pieces(self._features, self._lanes):
            found = squares.load(start, lanes)
            for row in range(1, self._period):
                found = tirx.max(found, squares.load(row * self._features + start, lanes))
            steps.append(largest.store(tirx.sqrt(found), start, lanes))
        return steps

    def _add_bound(self, largest: Any, error: Any, start: int, lanes: int) -> list[Any]:
        """Return the statements that add the bounds of the terms' errors, for a vector of outputs."""
        chains = next(count for count in (4, 3, 2, 1) if self._features % count == 0)
        parts = [scratch("part", lanes, "float32") for _ in range(chains)]
        zero = splat(0.0, "float32", lanes)

        def add(step: Any) -> Any:
            steps = []
            for chain, part in enumerate(parts):
                term = step * chains + chain
                factors = self._bound.load(term * self._room + start, lanes)
                total = part.load(0, lanes) + broadcast(largest.load(term), lanes) * factors
                steps.append(part.store(total, 0, lanes))
            return sequence(steps)

        steps = [step for part in parts for step in (*part.allocation(), part.store(zero, 0, lanes))]
        steps.append(serial("term", self._features // chains, add))
        total = error.load(0, lanes)
        for part in parts:
            total = total + part.load(0, lanes)
        return [*steps, error.store(total, 0, lanes)]


def _keep_largest(values: Sequence[Any], group: int, largest: Any) -> list[Any]:
    """Return the statements that note larger sums of the squares of `group` values.

    Squares need no separate absolute values. NaN stays the largest: squares are compared as integers.
    """
    steps: list[Any] = []
    lanes = lanes_of(largest)
    numbers, bits = vector_type("float32", lanes), vector_type("uint32", lanes)

    def bind(value: Any) -> Any:
        name = tirx.Var("value", numbers)
        steps.append(tirx.Bind(name, value))
        return name

    for at in range(0, len(values), group):
        names = [bind(value) for value in values[at : at + group]]
        total = names[0] * names[0]
        for name in names[1:]:
            total = name * name + total
        larger = tirx.max(*(tirx.reinterpret(bits, x) for x in (bind(total), largest.load(0, lanes))))
        steps.append(largest.store(tirx.reinterpret(numbers, larger), 0, lanes))
    return steps


def _compare(most: Any, error: Any, doubtful: Any, lanes: int) -> Any:
    """Return the statement that notes whether any output may be too far off."""

    def mark(condition: Any) -> Any:
        # (A comparison with NaN fails.)
        return tirx.Select(condition, splat(0, "int32", lanes), splat(1, "int32", lanes))

    marks = mark(error <= most * splat(SHARE, "float32", lanes))
    marks = marks | mark(most < splat(_LARGEST, "float32", lanes))
    marks = marks | mark(most > splat(_SMALLEST, "float32", lanes))
    found = tirx.call_llvm_pure_intrin("int32", "llvm.vector.reduce.or", marks)
    return doubtful.store(doubtful.load(0) | found, 0)


def lanes_of(place: Any) -> int:
    """Return the lanes of a vector that a scratch array holds."""
    return int(place.buffer.shape[0])


def starts(widths: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield start and lanes of neighbouring vectors."""
    start = 0
    for width in widths:
        yield start, width
        start += width


def pieces(count: int, lanes: int) -> Iterator[tuple[int, int]]:
    """Yield start and lanes of vectors without padding: full vectors, then powers of two."""
    start = 0
    while start < count:
        while lanes > count - start:
            lanes //= 2
        yield start, lanes
        start += lanes
