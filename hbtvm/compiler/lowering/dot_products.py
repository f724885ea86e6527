"""Dot products of rows with weights, read by rows.

Vectors run along the terms of a row, so that memory is read in order, and `lanes` rows are reduced together:
a tree of shuffles and additions adds each row's lanes, and leaves the sums of neighbouring rows side by side.
The loop over a tile's outputs that a schedule annotates (`hbtvm.schedules.cpu.linear.DOT_PRODUCTS`) becomes::

    for block of `vectors` * `lanes` rows:
        for terms, `lanes` at a time: for row: for output: sums[row, output] += number * weight
        scores[output, rows] = lanes of sums, added, + the terms that are left
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from hbtvm.compiler.lowering.indices import index_at
from hbtvm.schedules.statements import Place, const, scratch, sequence, serial, splat, vector_type

_NUMBER = "float64"


def make_dot_products(loop: Any) -> Any:
    """Return the replacement of an annotated loop of a lowered function.

    The loop is ``for output: for row: scores[.., output, row] = call(..)``, with unit strides of rows.
    """
    inner = loop.body
    store = inner.body
    first, *arguments = store.value.args[1:]

    def at(index: Any, output: int = 0) -> Any:
        return index_at(index, {loop.loop_var: output, inner.loop_var: 0})

    loads = [argument for argument in arguments if not isinstance(argument, tirx.IntImm)]
    sizes = [int(argument.value) for argument in arguments if isinstance(argument, tirx.IntImm)]
    features, numbers, shifts, fills, lanes, vectors = sizes
    rows, *tables = (Place(load.source, at(load.indices[0])) for load in (first, *loads))
    weight, *more = tables
    shift = more.pop(0) if shifts else None
    filled = more.pop(0) if fills else None
    scores = Place(store.buffer, at(store.indices[0]))
    work = _Rows(
        rows, weight, shift, filled, scores, int(inner.extent), int(loop.extent), features, numbers, lanes,
        vectors,
    )  # fmt: skip
    return work.statement()


@dataclass(frozen=True)
class _Rows:
    """A tile of rows, shape (count, features), and its scores, shape (outputs, count)."""

    rows: Place
    weight: Place  # shape (outputs, numbers)
    shift: Place | None  # shape (numbers,); None if all are 0
    filled: Place | None  # as `weight`: terms of missing numbers; None if none are missing
    scores: Place
    count: int
    outputs: int
    features: int
    numbers: int  # columns with a weight: the first ones
    lanes: int
    vectors: int  # vectors of rows of a block

    def statement(self) -> Any:
        """Return the statements of all scores."""
        size = self.lanes * self.vectors
        return serial("block", self.count // size, lambda block: self._block(block * size, size))

    def _block(self, first: Any, size: int) -> Any:
        lanes, kind = self.lanes, vector_type(_NUMBER, self.lanes)
        sums = scratch("sums", size * self.outputs * lanes, _NUMBER)

        def add(step: Any) -> Any:
            k = step * lanes
            steps: list[Any] = []

            def bind(value: Any) -> Any:
                name = tirx.Var("value", kind)
                steps.append(tirx.Bind(name, value))
                return name

            weights = [bind(self.weight.load(o * self.numbers + k, lanes)) for o in range(self.outputs)]
            shift = None if self.shift is None else bind(self.shift.load(k, lanes))
            for row in range(size):
                number = bind(self._numbers((first + row) * self.features + k))
                moved = number if shift is None else bind(number - shift)
                for o, weight in enumerate(weights):
                    term = moved * weight
                    if self.filled is not None:
                        known = number >= splat(-float("inf"), _NUMBER, lanes)
                        filled = self.filled.load(o * self.numbers + k, lanes)
                        term = tirx.Select(known, term, filled)
                    place = (row * self.outputs + o) * lanes
                    steps.append(sums.store(sums.load(place, lanes) + term, place, lanes))
            return sequence(steps)

        zero = splat(0.0, _NUMBER, lanes)
        steps = [*sums.allocation()]
        steps += [sums.store(zero, place * lanes, lanes) for place in range(size * self.outputs)]
        steps.append(serial("term", self.numbers // lanes, add))
        for o in range(self.outputs):
            for start in range(0, size, lanes):
                places = [((start + row) * self.outputs + o) * lanes for row in range(lanes)]
                total = _added([sums.load(place, lanes) for place in places], kind, steps)
                for k in range(self.numbers // lanes * lanes, self.numbers):
                    total = total + self._left(o, k, first + start)
                steps.append(self.scores.store(total, o * self.count + first + start, lanes))
        return sequence(steps)

    def _numbers(self, start: Any) -> Any:
        """Return a vector of a row's numbers, which may begin at any address."""
        dtype = str(self.rows.buffer.dtype)
        kind = vector_type(dtype, self.lanes)
        pointer = tirx.address_of(tirx.BufferLoad(self.rows.buffer, [self.rows.start + start]))
        mask = tirx.const(True, f"boolx{self.lanes}")
        numbers = tirx.call_llvm_pure_intrin(kind, "llvm.masked.load", pointer, mask, tirx.const(0, kind))
        return numbers if dtype == _NUMBER else numbers.astype(vector_type(_NUMBER, self.lanes))

    def _left(self, output: int, k: int, first: Any) -> Any:
        """Return a term that fills no vector, for a vector of rows."""
        lanes, place = self.lanes, const(output * self.numbers + k)
        index = tirx.Ramp(self.rows.start + first * self.features + k, const(self.features), lanes)
        number = tirx.BufferLoad(self.rows.buffer, [index]).astype(vector_type(_NUMBER, lanes))
        moved = number
        if self.shift is not None:
            moved = number - tirx.Broadcast(self.shift.load(const(k)), lanes)
        term = moved * tirx.Broadcast(self.weight.load(place), lanes)
        if self.filled is None:
            return term
        known = number >= splat(-float("inf"), _NUMBER, lanes)
        return tirx.Select(known, term, tirx.Broadcast(self.filled.load(place), lanes))


def _added(vectors: Sequence[Any], kind: str, steps: list[Any]) -> Any:
    """Return the vector whose lane n is the sum of the lanes of vector n, by a tree of shuffles of pairs."""
    lanes, size = len(vectors), 1

    def bind(value: Any) -> Any:
        name = tirx.Var("added", kind)
        steps.append(tirx.Bind(name, value))
        return name

    level = list(map(bind, vectors))
    while len(level) > 1:
        # Lanes are blocks of `size` rows; neighbouring blocks are parts of the same rows' sums.
        even = [at for start in range(0, lanes, 2 * size) for v in (0, lanes) for at in _run(v + start, size)]
        odd = [at + size for at in even]
        level = [
            bind(tirx.Shuffle([one, other], even) + tirx.Shuffle([one, other], odd))
            for one, other in zip(level[::2], level[1::2], strict=True)
        ]
        size *= 2
    return level[0]


def _run(start: int, size: int) -> range:
    return range(start, start + size)
