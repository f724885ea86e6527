"""Products of a tile of rows with weights, in float32 where the error's bound allows.

A tensor expression cannot express that a tile's sums decide what is computed next. The loop over the rows of
a tile that a schedule annotates (`hbtvm.schedules.cpu.product.PRODUCT`) becomes, for sums in float32::

    sums = rows @ narrow, in float32
    scores = sums + bias
    if any output's bound of the error is above a share of its largest score:
        scores = rows @ weight + bias, in float64

See `hbtvm.strategies.network.rounded_sums` for the bound.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from hbtvm.compiler.lowering.indices import index_at
from hbtvm.schedules.statements import Place, broadcast, const, scratch, sequence, serial, splat, vector_type
from hbtvm.strategies.network.product import segments
from hbtvm.strategies.network.rounded_sums import SHARE

_GROUP = 2  # rows whose squares are added before the largest is found: fewer comparisons, and a weaker bound
_LARGEST, _SMALLEST = 1e18, 1e-18  # scores between which their squares neither overflow nor underflow


_Part = tuple[int, list[Any]]  # first output of a vector of outputs, and the vector for each row of a block


def make_product(loop: Any) -> Any:
    """Return the replacement of an annotated loop of a lowered function.

    The loop is ``for row: for output: scores[.., row, output] = call(..)``.
    """
    inner = loop.body
    store = inner.body

    def at(index: Any) -> Any:
        return index_at(index, {loop.loop_var: 0, inner.loop_var: 0})

    _, *arguments = store.value.args
    loads = [argument for argument in arguments if not isinstance(argument, tirx.IntImm)]
    sizes = [int(argument.value) for argument in arguments if isinstance(argument, tirx.IntImm)]
    rows, *tables = (Place(load.source, at(load.indices[0])) for load in loads)
    scores = Place(store.buffer, at(store.indices[0]))
    tile = _Tile(rows, scores, int(loop.extent), *sizes)
    weight, bias, *more = tables
    wide = tile.in_float64(weight, bias)
    if not more:
        return wide
    narrow, bound, narrow_bias, slack = more
    return tile.in_float32(bias, narrow, bound, narrow_bias, slack, wide)


@dataclass(frozen=True)
class _Tile:
    """A tile of rows, shape (count, features), and its scores, shape (count, outputs)."""

    rows: Place
    scores: Place
    count: int
    features: int
    outputs: int
    lanes: int  # float64 numbers of a vector
    block: int  # rows that are summed at once
    vectors: int  # vectors of outputs that are summed at once
    terms: int  # terms of a sum in float32
    adds: int  # whether `bias` has other numbers than 0

    def in_float64(self, weight: Place, bias: Place) -> Any:
        """Return the statements of scores in float64."""
        widths = segments(self.outputs, self.lanes)
        narrow = str(self.rows.buffer.dtype) == "float32"

        def of_block(block: Any) -> Any:
            first, steps = block * self.block, list[Any]()
            numbers: Sequence[Place] = self._numbers(first)
            if narrow:
                # One conversion serves all vectors of outputs.
                wide = [scratch("widened", self.features, "float64", "global") for _ in numbers]
                for place, copy in zip(numbers, wide, strict=True):
                    steps += [*copy.allocation(), *_widen(place, copy, self.features, self.lanes)]
                numbers = wide
            for segment in self._together(_starts(widths)):
                parts = self._parts("float64", segment, steps)
                steps += _sums(numbers, weight, parts, sum(widths), 0, self.features)
                for start, sums in parts:
                    for row, values in enumerate(sums):
                        lanes = _lanes(values)
                        total = values.load(0, lanes) + bias.load(start, lanes)
                        steps += self._store(total, values, first, row, start)
            return sequence(steps)

        return serial("block", self.count // self.block, of_block)

    def _numbers(self, first: Any) -> list[Place]:
        """Return the places of a block's rows."""
        starts = (self.rows.start + (first + row) * self.features for row in range(self.block))
        return [Place(self.rows.buffer, start) for start in starts]

    def _together(self, starts: Iterable[tuple[int, int]]) -> list[list[tuple[int, int]]]:
        """Return the vectors of outputs, start and lanes, in groups that are summed at once."""
        vectors = list(starts)
        return [vectors[at : at + self.vectors] for at in range(0, len(vectors), self.vectors)]

    def _parts(self, dtype: str, vectors: Sequence[tuple[int, int]], steps: list[Any]) -> list[_Part]:
        """Return a vector for each row of a block and each vector of outputs, and allocate them."""
        parts = [
            (start, [scratch("sums", lanes, dtype, "global") for _ in range(self.block)])
            for start, lanes in vectors
        ]
        steps += [statement for _, part in parts for vector in part for statement in vector.allocation()]
        return parts

    def _store(self, total: Any, sums: Any, first: Any, row: int, start: int) -> list[Any]:
        """Return the statements that store a vector of scores, without the padding."""
        lanes, dtype = _lanes(sums), str(self.scores.buffer.dtype)
        count, place = min(lanes, self.outputs - start), (first + row) * self.outputs + start
        if count == lanes:
            return [self.scores.store(_cast(total, dtype, lanes), place, lanes)]
        steps = [sums.store(total, 0, lanes)]
        for piece, width in _pieces(count, lanes):
            value = sums.load(piece, width)
            steps.append(self.scores.store(_cast(value, dtype, width), place + piece, width))
        return steps

    def in_float32(
        self, bias: Place, weight: Place, bound: Place, narrow_bias: Place, slack: Place, otherwise: Any
    ) -> Any:
        """Return the statements of scores in float32, and of `otherwise` if they may be too far off."""
        widths = segments(self.outputs, 2 * self.lanes)
        room, groups = sum(widths), math.gcd(_GROUP, self.block)
        columns = [
            (start, scratch("columns", lanes, "float32", "global"))
            for start, lanes in _pieces(self.features, 2 * self.lanes)
        ]
        vectors = [(start, scratch("most", lanes, "float32", "global")) for start, lanes in _starts(widths)]
        steps: list[Any] = []
        for start, most in vectors:
            steps += [*most.allocation(), most.store(self._padding(start, _lanes(most)), 0, _lanes(most))]
        for _, largest in columns:
            zero = splat(0.0, "float32", _lanes(largest))
            steps += [*largest.allocation(), largest.store(zero, 0, _lanes(largest))]

        def of_block(block: Any) -> Any:
            first = block * self.block
            numbers = self._numbers(first)
            statements: list[Any] = []
            for start, largest in columns:
                values = [row.load(start, _lanes(largest)) for row in numbers]
                statements += _keep_largest(values, groups, largest)
            for group in self._together([(start, _lanes(most)) for start, most in vectors]):
                statements += self._products(
                    numbers, weight, bias, narrow_bias, dict(vectors), room, first, group
                )
            return sequence(statements)

        steps.append(serial("block", self.count // self.block, of_block))
        steps += self._checks(columns, vectors, bound, slack, room, groups, otherwise)
        return sequence(steps)

    def _padding(self, start: int, lanes: int) -> Any:
        """Return a vector that is 0 in lanes of outputs and 1 beyond, where no error matters."""
        places = tirx.Ramp(tirx.const(start, "int32"), tirx.const(1, "int32"), lanes)
        inside = places < tirx.Broadcast(tirx.const(self.outputs, "int32"), lanes)
        return tirx.Select(inside, splat(0.0, "float32", lanes), splat(1.0, "float32", lanes))

    def _checks(
        self,
        columns: Sequence[tuple[int, Any]],
        vectors: Sequence[tuple[int, Any]],
        bound: Place,
        slack: Place,
        room: int,
        groups: int,
        otherwise: Any,
    ) -> list[Any]:
        """Return the statements that compare each output's bound with its largest score."""
        largest = scratch("largest", self.features, "float32", "global")
        failed = scratch("failed", 1, "int32", "global")
        steps = [*largest.allocation(), *failed.allocation(), failed.store(tirx.const(0, "int32"), 0)]
        for start, squares in columns:
            lanes = _lanes(squares)
            steps.append(largest.store(tirx.sqrt(squares.load(0, lanes)), start, lanes))
        for start, most in vectors:
            lanes = _lanes(most)
            error = scratch("error", lanes, "float32", "global")
            steps += [
                *error.allocation(),
                error.store(slack.load(start, lanes), 0, lanes),
                *self._bound(largest, bound, error, room, start, lanes),
                _check(_root(most, groups), error.load(0, lanes), failed, lanes),
            ]
        return [*steps, tirx.IfThenElse(failed.load(0) != tirx.const(0, "int32"), otherwise, None)]

    def _bound(self, largest: Any, bound: Place, error: Any, room: int, start: int, lanes: int) -> list[Any]:
        """Return the statements that add the bounds of the terms' errors, for a vector of outputs."""
        chains = _divisor(self.features, 4)
        parts = [scratch("part", lanes, "float32", "global") for _ in range(chains)]
        zero = splat(0.0, "float32", lanes)

        def add(step: Any) -> Any:
            steps = []
            for chain, part in enumerate(parts):
                term = step * chains + chain
                factor = broadcast(largest.load(term), lanes) * bound.load(term * room + start, lanes)
                steps.append(part.store(part.load(0, lanes) + factor, 0, lanes))
            return sequence(steps)

        steps = [step for part in parts for step in (*part.allocation(), part.store(zero, 0, lanes))]
        steps.append(serial("term", self.features // chains, add))
        total = error.load(0, lanes)
        for part in parts:
            total = total + part.load(0, lanes)
        return [*steps, error.store(total, 0, lanes)]

    def _products(
        self,
        numbers: Sequence[Place],
        weight: Place,
        bias: Place,
        narrow_bias: Place,
        most: Mapping[int, Any],
        room: int,
        first: Any,
        vectors: Sequence[tuple[int, int]],
    ) -> list[Any]:
        """Return the statements of a block's scores of some outputs, and of the largest of each."""
        steps: list[Any] = []
        parts = self._parts("float32", vectors, steps)
        for begin in range(0, self.features, self.terms):
            count = min(self.terms, self.features - begin)
            added = self._parts("float32", vectors, steps) if begin else parts
            steps += _sums(numbers, weight, added, room, begin, count)
            for (_, totals), (_, sums) in zip(parts, added, strict=True) if begin else ():
                steps += [
                    total.store(total.load(0, _lanes(total)) + part.load(0, _lanes(total)), 0, _lanes(total))
                    for total, part in zip(totals, sums, strict=True)
                ]
        for start, totals in parts:
            steps += self._conclude(totals, bias, narrow_bias, most[start], first, start)
        return steps

    def _conclude(
        self, totals: Sequence[Any], bias: Place, narrow_bias: Place, most: Any, first: Any, start: int
    ) -> list[Any]:
        """Return the statements that note and store a block's scores of a vector of outputs."""
        lanes = _lanes(most)
        values = [total.load(0, lanes) for total in totals]
        moved = [value + narrow_bias.load(start, lanes) for value in values] if self.adds else values
        steps = _keep_largest(moved, math.gcd(_GROUP, self.block), most)
        narrow = str(self.scores.buffer.dtype) == "float32"
        if narrow and self.adds:
            steps += [total.store(value, 0, lanes) for total, value in zip(totals, moved, strict=True)]
        for row, total in enumerate(totals):
            steps += self._scores(total, None if narrow else bias, first, row, start)
        return steps

    def _scores(self, sums: Any, bias: Place | None, first: Any, row: int, start: int) -> list[Any]:
        """Return the statements that store a vector of a row's scores, without the padding."""
        steps = []
        widest = self.lanes if bias else 2 * self.lanes
        for at, width in _pieces(min(_lanes(sums), self.outputs - start), widest):
            value = sums.load(at, width)
            if bias:
                value = _cast(value, "float64", width) + bias.load(start + at, width)
            steps.append(self.scores.store(value, (first + row) * self.outputs + start + at, width))
        return steps


def _sums(
    numbers: Sequence[Place], weight: Place, parts: Sequence[_Part], room: int, first: int, count: int
) -> list[Any]:
    """Return the statements that sum some terms of rows, for vectors of outputs."""
    dtype = str(weight.buffer.dtype)

    def add(k: Any) -> Any:
        steps: list[Any] = []
        for start, sums in parts:
            lanes = _lanes(sums[0])
            factors = tirx.Var("factors", vector_type(dtype, lanes))
            steps.append(tirx.Bind(factors, weight.load((first + k) * room + start, lanes)))
            for row, total in zip(numbers, sums, strict=True):
                number = broadcast(row.load(first + k), lanes)
                steps.append(total.store(total.load(0, lanes) + number * factors, 0, lanes))
        return sequence(steps)

    zeros = [
        total.store(splat(0.0, dtype, _lanes(total)), 0, _lanes(total)) for _, sums in parts for total in sums
    ]
    return [*zeros, serial("term", count, add)]


def _lanes(place: Any) -> int:
    return int(place.buffer.shape[0])


def _keep_largest(values: Sequence[Any], group: int, largest: Any) -> list[Any]:
    """Return the statements that note larger sums of the squares of `group` values.

    Squares need no separate absolute values. Where a value is NaN, the others of its group may be left out.
    """
    steps: list[Any] = []
    lanes = _lanes(largest)

    def bind(value: Any) -> Any:
        name = tirx.Var("value", vector_type("float32", lanes))
        steps.append(tirx.Bind(name, value))
        return name

    for at in range(0, len(values), group):
        names = [bind(value) for value in values[at : at + group]]
        total = names[0] * names[0]
        for name in names[1:]:
            total = name * name + total
        total, before = bind(total), largest.load(0, lanes)
        # The second operand stays if the first is NaN.
        steps.append(largest.store(tirx.Select(total > before, total, before), 0, lanes))
    return steps


def _root(squares: Any, group: int) -> Any:
    """Return a lower bound of the largest number from the largest sum of the squares of `group` numbers."""
    lanes = _lanes(squares)
    return tirx.sqrt(squares.load(0, lanes) * splat(1 / group, "float32", lanes))


def _check(most: Any, error: Any, failed: Any, lanes: int) -> Any:
    """Return the statement that notes whether any output may be too far off."""

    def mark(condition: Any) -> Any:
        # (A comparison with NaN fails.)
        return tirx.Select(condition, splat(0, "int32", lanes), splat(1, "int32", lanes))

    marks = mark(error <= most * splat(SHARE, "float32", lanes))
    marks = marks | mark(most < splat(_LARGEST, "float32", lanes))
    marks = marks | mark(most > splat(_SMALLEST, "float32", lanes))
    found = tirx.call_llvm_pure_intrin("int32", "llvm.vector.reduce.or", marks)
    return failed.store(failed.load(0) | found, 0)


def _divisor(count: int, most: int) -> int:
    """Return the largest divisor of a count up to `most`."""
    return next(number for number in range(most, 0, -1) if count % number == 0)


def _starts(widths: list[int]) -> Iterator[tuple[int, int]]:
    start = 0
    for width in widths:
        yield start, width
        start += width


def _pieces(count: int, lanes: int) -> Iterator[tuple[int, int]]:
    """Yield start and lanes of vectors without padding: full vectors, then powers of two."""
    start = 0
    while start < count:
        while lanes > count - start:
            lanes //= 2
        yield start, lanes
        start += lanes


def _cast(value: Any, dtype: str, lanes: int) -> Any:
    return tirx.Cast(vector_type(dtype, lanes), value)


def _widen(numbers: Place, copy: Place, count: int, lanes: int) -> list[Any]:
    """Return the statements that copy numbers as float64."""

    def convert(start: Any, width: int) -> Any:
        return copy.store(_cast(numbers.load(start, width), "float64", width), start, width)

    whole = count // lanes
    steps: list[Any] = []
    if whole:
        steps.append(serial("number", whole, lambda n: convert(n * lanes, lanes)))
    done = whole * lanes
    steps += [convert(const(done + start), width) for start, width in _pieces(count - done, lanes)]
    return steps
