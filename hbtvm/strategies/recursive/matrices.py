"""Products of two matrices, or of a computed matrix and a vector.

A product of two matrices is computed in tiles of rows and vectors of columns, block by block of its terms::

    for panel of columns: for block of terms: for tile of rows: for term: sums of the tile in registers
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import tirx

from hbtvm.recursive.cell import Shape, Value
from hbtvm.schedules.statements import broadcast, const, scratch, splat
from hbtvm.strategies.recursive.nests import operands, padded
from hbtvm.strategies.recursive.products import serial_loop
from hbtvm.strategies.recursive.whole import Body, Whole, loop

_BLOCK = 64  # terms of a product of matrices at a time: their rows of a panel stay in the first-level cache
_VECTORS = 4  # vectors of columns of a panel, at most
_ROWS = 4  # rows of a product of a matrix and a vector at a time

_SHARED = 1 << 12
"""Size of a matrix from which threads share its product with a vector, despite the barrier."""

_Block = tuple[int, int, int, int]
"""Part of a product of matrices: the operand, its first row among all terms, the first term and the end."""


def tile_of(shape: Shape, lanes: int, registers: int) -> tuple[int, int]:
    """Return the rows and vectors of a tile of a product of matrices."""
    vectors = padded(shape[1]) // lanes
    wide = max(n for n in range(1, min(_VECTORS, vectors) + 1) if vectors % n == 0)
    most = min(max(1, registers // wide), shape[0])
    tile = max(n for n in range(1, most + 1) if shape[0] % n == 0)
    return (most if tile < most / 2 else tile), wide


def parts_of(value: Value, terms: int, lanes: int, registers: int) -> int:
    """Return the number of tiles of rows that threads may share of a product; 0 for none."""
    if value.op != "matmul":
        return 0
    rows = value.shape[0]
    if len(value.shape) == 1:
        return rows // _ROWS if rows % _ROWS == 0 and rows * terms >= _SHARED else 0
    tile, _ = tile_of(value.shape, lanes, registers)
    return rows // tile if rows % tile == 0 else 0


class MatrixProduct(Whole):
    """A product of a matrix and a vector, or of two matrices."""

    def body(self) -> list[Any]:
        """Return the statements that compute it."""
        return self._of_vector() if len(self.value.shape) == 1 else self._of_matrix()

    def _of_vector(self) -> list[Any]:
        """Multiply a matrix by a vector: sums along rows, some rows at a time."""
        matrix, _ = self.value.of
        rows, terms = self.values[matrix].shape
        if self.span is not None:
            first, stop = self.span
            i = tirx.Var("i", "int64")
            body = self._rows_of_vector((first + i) * _ROWS, _ROWS, terms)
            return [serial_loop(i, stop - first, body)]
        whole = rows // _ROWS * _ROWS
        return [
            *loop(0, whole, _ROWS, lambda i: self._rows_of_vector(i, _ROWS, terms)),
            *(self._rows_of_vector(const(whole), rows - whole, terms) if rows > whole else []),
        ]

    def _rows_of_vector(self, first: Any, count: int, terms: int) -> list[Any]:
        matrix, vector = self.value.of
        lanes, wide = self.lanes, padded(terms)
        sums = [scratch("sum", lanes, "float32") for _ in range(count)]
        whole = terms // lanes * lanes

        def term(width: int) -> Body:
            def statements(k: Any) -> list[Any]:
                body, x = self.read(vector, k, width)
                for row, memory in enumerate(sums):
                    read, factor = self.read(matrix, (first + row) * wide + k, width)
                    body = [*body, *read, memory.store(memory.load(0, width) + factor * x, 0, width)]
                return body

            return statements

        body = [statement for memory in sums for statement in memory.allocation()]
        body += [memory.store(splat(0.0, "float32", lanes), 0, lanes) for memory in sums]
        body += [*loop(0, whole, lanes, term(lanes)), *loop(whole, terms, 1, term(1))]
        for row, memory in enumerate(sums):
            read, total = self.reduced(memory, lambda a, b: a + b)
            body += [*read, *self.result.store(first + row, total, 1)]
        return body

    def _of_matrix(self) -> list[Any]:
        rows, columns = self.value.shape
        tile, wide = tile_of(self.value.shape, self.lanes, self.registers)
        left, *right = operands(self.values, self.number)
        blocks, at = [], 0
        for operand in right:
            terms = self.values[operand].shape[0]
            blocks += [(operand, at, k, min(k + _BLOCK, terms)) for k in range(0, terms, _BLOCK)]
            at += terms
        factors = self._factors(left, tile)

        def rows_of(block: _Block, column: Any) -> list[Any]:
            adds = block is not blocks[0]

            def tiles_of(count: int) -> Body:
                return lambda first: self._tile(first, count, column, wide, factors, block, adds)

            if self.span is not None:
                first, stop = self.span
                i = tirx.Var("i", "int64")
                return [serial_loop(i, stop - first, tiles_of(tile)((first + i) * tile))]
            whole = rows // tile * tile
            last = tiles_of(rows - whole)(const(whole)) if rows > whole else []
            return [*loop(0, whole, tile, tiles_of(tile)), *last]

        def panel(column: Any) -> list[Any]:
            return [operand for block in blocks for operand in rows_of(block, column)]

        return loop(0, padded(columns), wide * self.lanes, panel)

    def _factors(self, left: int, tile: int) -> Callable[[Any, int, Any], tuple[list[Any], Any]]:
        """Return a function from (tile's first row, row in it, term) to the left matrix's number."""
        value = self.values[left]
        if value.op != "weight":
            width = padded(value.shape[1])
            return lambda first, row, k: self.read(left, (first + row) * width + k, 1)
        array = self.here.facts.weights[value.name]
        tall = np.zeros((-(-len(array) // tile) * tile, array.shape[1]), np.float32)
        tall[: len(array)] = array
        packed = np.ascontiguousarray(tall.reshape(-1, tile, array.shape[1]).transpose(0, 2, 1))
        table = self.here.parameters.table(packed)
        return lambda first, row, k: (
            [],
            tirx.BufferLoad(table, [tirx.floordiv(first, const(tile)), k, const(row)]),
        )

    def _tile(
        self,
        first: Any,
        count: int,
        column: Any,
        wide: int,
        factors: Callable[[Any, int, Any], tuple[list[Any], Any]],
        block: _Block,
        adds: bool,
    ) -> list[Any]:
        """Add a block's terms to the sums of some rows of a panel."""
        right, offset, start, stop = block
        lanes, width = self.lanes, padded(self.value.shape[1])
        sums = {(row, n): scratch("sum", lanes, "float32") for row in range(count) for n in range(wide)}

        def place(row: int, n: int) -> Any:
            return (first + row) * width + column + n * lanes

        statements = [statement for memory in sums.values() for statement in memory.allocation()]
        for key, memory in sums.items():
            begin = self.result.load(place(*key), lanes) if adds else splat(0.0, "float32", lanes)
            statements.append(memory.store(begin, 0, lanes))

        def term(k: Any) -> list[Any]:
            body, loaded = [], []
            for n in range(wide):
                read, value = self.read(right, k * width + column + n * lanes, lanes)
                body += read
                loaded.append(value)
            for row in range(count):
                read, value = factors(first, row, k + offset)
                factor = tirx.Var("factor", f"float32x{lanes}" if lanes > 1 else "float32")
                body += [*read, tirx.Bind(factor, broadcast(value, lanes))]
                for n in range(wide):
                    memory = sums[row, n]
                    body.append(memory.store(memory.load(0, lanes) + factor * loaded[n], 0, lanes))
            return body

        statements += loop(start, stop, 1, term)
        for key, memory in sums.items():
            statements += self.result.store(place(*key), memory.load(0, lanes), lanes)
        return statements
