"""Values that are whole: products of states, softmax, what is put together, cut out or laid out otherwise.

Operands are in memory, and so is the result, row by row (`hbtvm.strategies.recursive.nests`). A product of
two matrices is computed in tiles of rows and of vectors of columns, block by block of its terms::

    for panel of columns: for block of terms: for tile of rows: for term: sums of the tile in registers
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import tirx

from hbtvm.recursive.cell import Shape
from hbtvm.schedules.statements import Scratch, broadcast, every, scratch, sequence
from hbtvm.strategies.recursive.nests import flat, operands, padded, row_starts
from hbtvm.strategies.recursive.vectors import Vectors

_BLOCK = 64
"""Terms of a product of matrices at a time: their rows of a panel stay in the first-level cache."""

_VECTORS = 4
"""Vectors of columns of a panel, at most."""

_ROWS = 4
"""Rows of a product of a matrix and a vector at a time."""


_Block = tuple[int, int, int, int]
"""Of a product of matrices: the operand, its first row among all terms, the first term and the end."""

_Body = Callable[[Any], list[Any]]
"""From the variable of a loop to what is in it."""


@dataclass(frozen=True)
class Result:
    """Where a value goes.

    Attributes
    ----------
    store
        Makes the statements that put a vector, or a number, at a place in it.
    load
        Makes an expression of what was put there.
    """

    store: Callable[[Any, Any, int], list[Any]]
    load: Callable[[Any, int], Any]


class Whole:
    """Makes the statements that compute one value of one node.

    Parameters
    ----------
    number
        Of the value.
    here
        Expressions at the node.
    result
        Where it goes.
    lanes, registers
        Numbers of a vector, and vectors of sums that stay in registers.
    """

    def __init__(self, number: int, here: Vectors, result: Result, lanes: int, registers: int) -> None:
        self.here, self.result, self.lanes, self.registers = here, result, lanes, registers
        self.values = here.facts.values
        self.number, self.value = number, here.facts.values[number]

    def statements(self) -> list[Any]:
        """All of them."""
        for one in operands(self.values, self.number):
            self.here.find(one)
        made = getattr(self, f"_{self.value.op}")()
        return [*self.here.statements, *self._zeros(), *made]

    def _zeros(self) -> list[Any]:
        """What is behind a vector's end is zero, where it is not written with it."""
        shape = self.value.shape
        if len(shape) > 1 or shape[0] % self.lanes == 0:
            return []
        first = shape[0] // self.lanes * self.lanes
        starts = range(first, padded(shape[0]), self.lanes)
        zero = every(0.0, "float32", self.lanes)
        return [one for at in starts for one in self.result.store(_const(at), zero, self.lanes)]

    def _read(self, number: int, at: Any, lanes: int) -> tuple[list[Any], Any]:
        """Statements and then an expression of numbers of an operand."""
        moved = self.here.moved(at, lanes)
        found = moved.of(number)
        return moved.statements, found

    def _copied(self, number: int, start: Any, to: Any, count: int) -> list[Any]:
        """Copy neighbours: whole vectors of them, then the rest one by one."""
        vectors = count // self.lanes * self.lanes

        def copy(lanes: int) -> _Body:
            def one(at: Any) -> list[Any]:
                made, found = self._read(number, at + start, lanes)
                return [*made, *self.result.store(at + to, found, lanes)]

            return one

        return [
            *_loop(0, vectors, self.lanes, copy(self.lanes)),
            *_loop(vectors, count, 1, copy(1)),
        ]

    def _concat(self) -> list[Any]:
        made, at = [], 0
        for one in self.value.of:
            shape = self.values[one].shape
            count = flat(shape) if len(shape) > 1 else shape[0]
            made += self._copied(one, 0, _const(at), count)
            at += count
        return made

    def _slice(self) -> list[Any]:
        (source,) = self.value.of
        start = self.value.start * row_starts(self.value.shape)
        count = flat(self.value.shape) if len(self.value.shape) > 1 else self.value.shape[0]
        return self._copied(source, _const(start), 0, count)

    def _reshape(self) -> list[Any]:
        (source,) = self.value.of
        shapes = self.values[source].shape, self.value.shape

        def one(which: Any) -> list[Any]:
            start, to = (_place(shape, which) for shape in shapes)
            made, found = self._read(source, start, 1)
            return [*made, *self.result.store(to, found, 1)]

        return _loop(0, int(np.prod(self.value.shape)), 1, one)

    def _outer(self) -> list[Any]:
        left, right = self.value.of
        rows, columns = self.value.shape
        wide = padded(columns)

        def row(i: Any) -> list[Any]:
            made, factor = self._read(left, i, 1)

            def vector(at: Any) -> list[Any]:
                own, found = self._read(right, at, self.lanes)
                product = broadcast(factor, self.lanes) * found
                return [*own, *self.result.store(i * wide + at, product, self.lanes)]

            return [*made, *_loop(0, wide, self.lanes, vector)]

        return _loop(0, rows, 1, row)

    def _softmax(self) -> list[Any]:
        """Powers of what the numbers are below the largest; then their shares."""
        (source,) = self.value.of
        count, lanes = self.value.shape[0], self.lanes
        largest, total = scratch("largest", lanes, "float32"), scratch("total", lanes, "float32")
        low = every(-3.0e38, "float32", lanes)

        def inside(at: Any, value: Any, otherwise: Any) -> Any:
            places = at + tirx.Ramp(_const(0), _const(1), lanes) if lanes > 1 else at
            return tirx.Select(places < broadcast(_const(count), lanes), value, otherwise)

        def most(at: Any) -> list[Any]:
            made, found = self._read(source, at, lanes)
            own = largest.load(0, lanes)
            return [*made, largest.store(tirx.max(own, inside(at, found, low)), 0, lanes)]

        found_most, top = self._reduced(largest, tirx.max)

        def power(at: Any) -> list[Any]:
            moved = self.here.moved(at, lanes)
            # What is behind the end may be anything, and its power is left out.
            below = inside(at, moved.of(source) - broadcast(top, lanes), every(0.0, "float32", lanes))
            made = moved.functions.shared(moved.functions.of("exp", below))
            own = inside(at, made, every(0.0, "float32", lanes))
            summed = total.store(total.load(0, lanes) + own, 0, lanes)
            return [*moved.statements, *self.result.store(at, made, lanes), summed]

        found_total, sum_ = self._reduced(total, lambda a, b: a + b)

        def share(at: Any) -> list[Any]:
            return self.result.store(at, self.result.load(at, lanes) / broadcast(sum_, lanes), lanes)

        def all_of(body: _Body) -> list[Any]:
            return _loop(0, padded(count), lanes, body)

        return [
            *largest.made(),
            *total.made(),
            largest.store(low, 0, lanes),
            total.store(every(0.0, "float32", lanes), 0, lanes),
            *all_of(most),
            *found_most,
            *all_of(power),
            *found_total,
            *all_of(share),
        ]

    def _reduced(self, memory: Scratch, combine: Callable[[Any, Any], Any]) -> tuple[list[Any], Any]:
        """Statements that make one number of a vector in memory, and its name."""
        made, half = [], self.lanes
        while half > 1:
            half //= 2
            made.append(memory.store(combine(memory.load(0, half), memory.load(half, half)), 0, half))
        variable = tirx.Var("reduced", "float32")
        return [*made, tirx.Bind(variable, memory.load(0, 1))], variable

    def _matmul(self) -> list[Any]:
        return self._of_vector() if len(self.value.shape) == 1 else self._of_matrix()

    def _of_vector(self) -> list[Any]:
        """A matrix and a vector: sums along rows, of some rows at a time."""
        matrix, _ = self.value.of
        rows, terms = self.values[matrix].shape
        whole = rows // _ROWS * _ROWS
        return [
            *_loop(0, whole, _ROWS, lambda i: self._rows_of_vector(i, _ROWS, terms)),
            *(self._rows_of_vector(_const(whole), rows - whole, terms) if rows > whole else []),
        ]

    def _rows_of_vector(self, first: Any, count: int, terms: int) -> list[Any]:
        matrix, vector = self.value.of
        lanes, wide = self.lanes, padded(terms)
        sums = [scratch("sum", lanes, "float32") for _ in range(count)]
        whole = terms // lanes * lanes

        def term(width: int) -> _Body:
            def one(k: Any) -> list[Any]:
                made, x = self._read(vector, k, width)
                for row, memory in enumerate(sums):
                    own, found = self._read(matrix, (first + row) * wide + k, width)
                    made = [*made, *own, memory.store(memory.load(0, width) + found * x, 0, width)]
                return made

            return one

        made = [one for memory in sums for one in memory.made()]
        made += [memory.store(every(0.0, "float32", lanes), 0, lanes) for memory in sums]
        made += [*_loop(0, whole, lanes, term(lanes)), *_loop(whole, terms, 1, term(1))]
        for row, memory in enumerate(sums):
            own, found = self._reduced(memory, lambda a, b: a + b)
            made += [*own, *self.result.store(first + row, found, 1)]
        return made

    def _of_matrix(self) -> list[Any]:
        rows, columns = self.value.shape
        vectors = padded(columns) // self.lanes
        wide = max(n for n in range(1, min(_VECTORS, vectors) + 1) if vectors % n == 0)
        most = max(1, self.registers // wide)
        tile = max(n for n in range(1, min(most, rows) + 1) if rows % n == 0)
        if tile < min(most, rows) / 2:
            tile = min(most, rows)
        left, *right = operands(self.values, self.number)
        blocks, at = [], 0
        for one in right:
            terms = self.values[one].shape[0]
            blocks += [(one, at, k, min(k + _BLOCK, terms)) for k in range(0, terms, _BLOCK)]
            at += terms
        factors = self._factors(left, tile)

        def panel(column: Any) -> list[Any]:
            made: list[Any] = []
            for block in blocks:
                again = block is not blocks[0]

                def tile_of(
                    count: int, block: Any = block, again: bool = again
                ) -> Callable[[Any], list[Any]]:
                    return lambda i: self._tile(i, count, column, wide, factors, block, again)

                whole = rows // tile * tile
                made += _loop(0, whole, tile, tile_of(tile))
                if rows > whole:
                    made += tile_of(rows - whole)(_const(whole))
            return made

        return _loop(0, padded(columns), wide * self.lanes, panel)

    def _factors(self, left: int, tile: int) -> Callable[[Any, int, Any], tuple[list[Any], Any]]:
        """Numbers of the left matrix, by the first row of a tile, the row in it, and the term."""
        value = self.values[left]
        if value.op != "weight":
            width = padded(value.shape[1])
            return lambda first, row, k: self._read(left, (first + row) * width + k, 1)
        array = self.here.facts.weights[value.name]
        tall = np.zeros((-(-len(array) // tile) * tile, array.shape[1]), np.float32)
        tall[: len(array)] = array
        packed = np.ascontiguousarray(tall.reshape(-1, tile, array.shape[1]).transpose(0, 2, 1))
        table = self.here.parameters.table(packed)
        return lambda first, row, k: (
            [],
            tirx.BufferLoad(table, [tirx.floordiv(first, _const(tile)), k, _const(row)]),
        )

    def _tile(
        self,
        first: Any,
        count: int,
        column: Any,
        wide: int,
        factors: Callable[[Any, int, Any], tuple[list[Any], Any]],
        block: _Block,
        again: bool,
    ) -> list[Any]:
        """Terms of a block, added to the sums of some rows of a panel."""
        right, offset, start, stop = block
        lanes, width = self.lanes, padded(self.value.shape[1])
        sums = {(row, n): scratch("sum", lanes, "float32") for row in range(count) for n in range(wide)}

        def place(row: int, n: int) -> Any:
            return (first + row) * width + column + n * lanes

        made = [one for memory in sums.values() for one in memory.made()]
        for key, memory in sums.items():
            begin = self.result.load(place(*key), lanes) if again else every(0.0, "float32", lanes)
            made.append(memory.store(begin, 0, lanes))

        def term(k: Any) -> list[Any]:
            body, loaded = [], []
            for n in range(wide):
                own, found = self._read(right, k * width + column + n * lanes, lanes)
                body += own
                loaded.append(found)
            for row in range(count):
                own, found = factors(first, row, k + offset)
                factor = tirx.Var("factor", f"float32x{lanes}" if lanes > 1 else "float32")
                body += [*own, tirx.Bind(factor, broadcast(found, lanes))]
                for n in range(wide):
                    memory = sums[row, n]
                    body.append(memory.store(memory.load(0, lanes) + factor * loaded[n], 0, lanes))
            return body

        made += _loop(start, stop, 1, term)
        for key, memory in sums.items():
            made += self.result.store(place(*key), memory.load(0, lanes), lanes)
        return made


def _place(shape: Shape, which: Any) -> Any:
    """Where a number is in memory, by its place among all."""
    if len(shape) == 1:
        return which
    columns, width = _const(shape[1]), padded(shape[1])
    return tirx.floordiv(which, columns) * width + tirx.floormod(which, columns)


def _const(value: int) -> Any:
    return tirx.const(value, "int64")


def _loop(start: int, stop: int, step: int, body: _Body) -> list[Any]:
    """A loop over places, or what it does for its only one."""
    count = (stop - start) // step
    if count < 1:
        return []
    if count == 1:
        return body(_const(start))
    variable = tirx.Var("i", "int64")
    at = variable * step + start if (start or step > 1) else variable
    loop = tirx.For(variable, _const(0), _const(count), tirx.ForKind.SERIAL, sequence(body(at)))
    return [loop]
