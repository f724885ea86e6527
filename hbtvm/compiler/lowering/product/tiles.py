"""Products of a tile of rows with weights, in float32 where the error's bound allows.

A tensor expression cannot express that a tile's sums decide what is computed next. The loop over tiles that a
schedule annotates (`hbtvm.schedules.cpu.product.PRODUCT`) becomes, for sums in float32::

    for tile:
        sums = rows @ narrow, in float32
        scores = sums + bias
        if any output's bound of the error is above a share of its largest score:
            scores = rows @ weight + bias, in float64

The function returns 1 if it kept the sums of all tiles, which shows the executor that all values are finite.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from hbtvm.compiler.lowering.indices import index_at
from hbtvm.compiler.lowering.product.bound import Check, lanes_of, pieces, starts
from hbtvm.schedules.statements import Place, broadcast, const, scratch, sequence, serial, splat, vector_type
from hbtvm.strategies.network.product import segments

_UNROLLED = 512  # most operations of a block's sums, of one vector of outputs, without a loop over terms
_FEW = 8  # rows of a block of which two runs of sums stay in registers

_Part = tuple[int, list[Any]]  # first output of a vector of outputs, and the vector for each row of a block


def make_product(loop: Any) -> Any:
    """Return the replacement of an annotated loop of a lowered function.

    The loop is ``for tile: for row: for output: scores[.., row, output] = call(..)``.
    """
    row = loop.body
    store = row.body.body

    def at(index: Any) -> Any:
        return index_at(index, {row.loop_var: 0, row.body.loop_var: 0})

    _, *arguments = store.value.args
    loads = [argument for argument in arguments if not isinstance(argument, tirx.IntImm)]
    sizes = [int(argument.value) for argument in arguments if isinstance(argument, tirx.IntImm)]
    rows, *tables = (Place(load.source, at(load.indices[0])) for load in loads)
    scores = Place(store.buffer, at(store.indices[0]))
    tile = _Tile(rows, scores, int(row.extent), *sizes)
    weight, bias, *more = tables
    wide = tile.in_float64(weight, bias)
    if not more:
        return _with_body(loop, wide)
    narrow, bound, narrow_bias, slack = more
    failed = scratch("failed", 1, "int32")
    check = Check(tile.features, tile.outputs, 2 * tile.lanes, tile.block, bound, slack)
    steps = [*tile.in_float32(loop.loop_var, bias, narrow, narrow_bias, check), *check.end(failed, wide)]
    return sequence(
        [
            *failed.allocation(),
            failed.store(tirx.const(0, "int32"), 0),
            _with_body(loop, sequence(steps)),
            # The executor needs no look at scores of which each passed a check.
            tirx.Return(tirx.Cast("int64", failed.load(0) == tirx.const(0, "int32"))),
        ]
    )


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
                wide = [scratch("widened", self.features, "float64") for _ in numbers]
                for place, copy in zip(numbers, wide, strict=True):
                    steps += [*copy.allocation(), *_widen(place, copy, self.features, self.lanes)]
                numbers = wide
            for segment in self._together(starts(widths)):
                parts = self._parts("float64", segment, steps)
                steps += _sums(numbers, weight, [(0, parts)], sum(widths), self.features)
                for start, sums in parts:
                    for row, values in enumerate(sums):
                        lanes = lanes_of(values)
                        total = values.load(0, lanes) + bias.load(start, lanes)
                        steps += self._store(total, values, first, row, start)
            return sequence(steps)

        return serial("block", self.count // self.block, of_block)

    @property
    def _unrolled(self) -> bool:
        """Whether sums in float32 are computed without a loop over terms."""
        return self.outputs <= 2 * self.lanes and _FEW <= self.block <= _UNROLLED // self.features

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
            (start, [scratch("sums", lanes, dtype) for _ in range(self.block)]) for start, lanes in vectors
        ]
        steps += [statement for _, part in parts for vector in part for statement in vector.allocation()]
        return parts

    def _store(self, total: Any, sums: Any, first: Any, row: int, start: int) -> list[Any]:
        """Return the statements that store a vector of scores, without the padding."""
        lanes, dtype = lanes_of(sums), str(self.scores.buffer.dtype)
        count, place = min(lanes, self.outputs - start), (first + row) * self.outputs + start
        if count == lanes:
            return [self.scores.store(_cast(total, dtype, lanes), place, lanes)]
        steps = [sums.store(total, 0, lanes)]
        for piece, width in pieces(count, lanes):
            value = sums.load(piece, width)
            steps.append(self.scores.store(_cast(value, dtype, width), place + piece, width))
        return steps

    def in_float32(
        self, tile: Any, bias: Place, weight: Place, narrow_bias: Place, check: Check
    ) -> list[Any]:
        """Return the statements of scores in float32, which a check looks at.

        `tile`: number of the tile.
        """

        def of_block(block: Any) -> Any:
            first = block * self.block
            numbers = self._numbers(first)
            statements: list[Any] = []
            # This adds 0. Without it, LLVM loads unrolled loops' weights before all tiles, and spills them.
            zero = tirx.shift_right(tile + block, const(40)) if self._unrolled else 0
            moved = Place(weight.buffer, weight.start + zero)
            for group in self._together(check.vectors):
                statements += self._products(numbers, moved, bias, narrow_bias, check, first, group)
            # (Last: LLVM would keep loads that precede the sums' loops in memory until after them.)
            return sequence([*statements, *check.note_rows(numbers)])

        return [*check.begin(), serial("block", self.count // self.block, of_block)]

    def _products(
        self,
        numbers: Sequence[Place],
        weight: Place,
        bias: Place,
        narrow_bias: Place,
        check: Check,
        first: Any,
        vectors: Sequence[tuple[int, int]],
    ) -> list[Any]:
        """Return the statements of a block's scores of some outputs, and of the largest of each."""
        steps: list[Any] = []
        whole: list[_Part] = []
        room = sum(lanes for _, lanes in check.vectors)
        for count, begins in self._runs(len(vectors)):
            runs = [(begin, self._parts("float32", vectors, steps)) for begin in begins]
            steps += _sums(numbers, weight, runs, room, count, self._unrolled)
            for _, parts in runs:
                whole = whole or parts
                if parts is not whole:
                    for (_, totals), (_, sums) in zip(whole, parts, strict=True):
                        steps += [_add(total, part) for total, part in zip(totals, sums, strict=True)]
        for start, totals in whole:
            steps += self._conclude(totals, bias, narrow_bias, check, first, start)
        return steps

    def _runs(self, vectors: int) -> Iterator[tuple[int, list[int]]]:
        """Yield the terms of runs, and the first terms of the one or two runs that are summed at once.

        `vectors`: vectors of outputs of a run.
        """
        whole = list(range(0, self.features - self.terms + 1, self.terms))
        # Rolled loops of few sums would wait for the sum before, and LLVM unrolls shorter ones badly.
        together = 2 if vectors == 1 and self.block <= _FEW else 1
        for at in range(0, len(whole), together):
            yield self.terms, whole[at : at + together]
        if self.features % self.terms:
            yield self.features % self.terms, [self.terms * len(whole)]

    def _conclude(
        self, totals: Sequence[Any], bias: Place, narrow_bias: Place, check: Check, first: Any, start: int
    ) -> list[Any]:
        """Return the statements that note and store a block's scores of a vector of outputs."""
        lanes = lanes_of(totals[0])
        values = [total.load(0, lanes) for total in totals]
        moved = [value + narrow_bias.load(start, lanes) for value in values] if self.adds else values
        steps = check.note_scores(start, moved)
        narrow = str(self.scores.buffer.dtype) == "float32"
        if narrow and self.adds:
            steps += [total.store(value, 0, lanes) for total, value in zip(totals, moved, strict=True)]
        for row, total in enumerate(totals):
            steps += self._scores(total, None if narrow else bias, first, row, start)
        return steps

    def _scores(self, sums: Any, bias: Place | None, first: Any, row: int, start: int) -> list[Any]:
        """Return the statements that store a vector of a row's scores, without the padding."""
        if bias is None and lanes_of(sums) >= self.outputs and row < self.block - 1:
            # The next row's scores overwrite the padding.
            return [
                self.scores.store(sums.load(0, lanes_of(sums)), (first + row) * self.outputs, lanes_of(sums))
            ]
        steps = []
        widest = self.lanes if bias else 2 * self.lanes
        for at, width in pieces(min(lanes_of(sums), self.outputs - start), widest):
            value = sums.load(at, width)
            if bias:
                value = _cast(value, "float64", width)
                value = value + bias.load(start + at, width) if self.adds else value
            steps.append(self.scores.store(value, (first + row) * self.outputs + start + at, width))
        return steps


def _sums(
    numbers: Sequence[Place],
    weight: Place,
    runs: Sequence[tuple[int, Sequence[_Part]]],
    room: int,
    count: int,
    unrolled: bool = False,
) -> list[Any]:
    """Return the statements that sum runs of terms of rows, for vectors of outputs.

    `runs`: first term, and sums.
    `unrolled`: whether there is no loop over terms.
    """
    dtype = str(weight.buffer.dtype)
    sums_of = [(first, start, sums) for first, parts in runs for start, sums in parts]

    def add(k: Any) -> Any:
        steps: list[Any] = []
        for first, start, sums in sums_of:
            lanes = lanes_of(sums[0])
            factors = tirx.Var("factors", vector_type(dtype, lanes))
            steps.append(tirx.Bind(factors, weight.load((first + k) * room + start, lanes)))
            for row, total in zip(numbers, sums, strict=True):
                number = broadcast(row.load(first + k), lanes)
                steps.append(total.store(total.load(0, lanes) + number * factors, 0, lanes))
        return sequence(steps)

    zeros = [
        total.store(splat(0.0, dtype, lanes_of(total)), 0, lanes_of(total))
        for _, _, sums in sums_of
        for total in sums
    ]
    if unrolled:
        return [*zeros, *(add(const(k)) for k in range(count))]
    return [*zeros, serial("term", count, add)]


def _add(total: Any, part: Any) -> Any:
    """Return the statement that adds a vector to another."""
    lanes = lanes_of(total)
    return total.store(total.load(0, lanes) + part.load(0, lanes), 0, lanes)


def _with_body(loop: Any, body: Any) -> Any:
    """Return a serial loop with another body."""
    return tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.SERIAL, body)


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
    steps += [convert(const(done + start), width) for start, width in pieces(count - done, lanes)]
    return steps
