"""Products of two matrices, or of a computed matrix and a vector.

A product of two matrices is computed in tiles of rows and panels of columns, block by block of its terms, as
BLAS does (Goto and van de Geijn, 2008)::

    for block of terms: for panel of columns:
        pack the right matrix's block of the panel
        for tile of rows: for term of the block: sums of the tile in registers

The left matrix, if it is a constant, is packed in tiles when the kernel is compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import tirx

from hbtvm.recursive.cell import Shape, Value
from hbtvm.schedules.statements import Scratch, broadcast, const, scratch, sequence, splat, vector_type
from hbtvm.strategies.recursive.nests import operands, padded
from hbtvm.strategies.recursive.products import serial_loop
from hbtvm.strategies.recursive.whole import Body, Whole, loop

_BLOCK = 256  # terms of a product of matrices at a time: their rows of a panel stay in the first-level cache
_VECTORS = 2  # vectors of columns of a panel, at most
_ROWS = 4  # rows of a product of a matrix and a vector at a time

_PARTS = 8  # parts of a product of matrices that threads may share
_GROUP = 16  # fewest rows of a part, since each part packs its panel

_SHARED = 1 << 12
"""Size of a matrix from which threads share its product with a vector, despite the barrier."""

_Factors = Callable[[Any, int, Any], tuple[list[Any], Any]]
"""Function from (tile's first row, row in it, term) to statements and the left matrix's number."""


@dataclass(frozen=True)
class _Block:
    """Terms of a product of matrices."""

    operand: int
    offset: int  # the operand's first row among all terms
    # `start`, `stop`: the first term, in the operand, and the end
    start: int
    stop: int


@dataclass(frozen=True)
class Blocking:
    """Tiles of a product of matrices, and the parts that threads may share."""

    tile: int  # rows of a tile
    vectors: int  # vectors of columns of a panel
    panels: int
    groups: int  # parts of each panel
    tiles: int  # tiles of a part
    packs: bool  # whether several tiles read a panel, so that it is worth packing


def blocking_of(shape: Shape, lanes: int, registers: int) -> Blocking:
    """Return the tiles and parts of a product of matrices."""
    rows, vectors = shape[0], padded(shape[1]) // lanes
    wide = max(n for n in range(1, min(_VECTORS, vectors) + 1) if vectors % n == 0)
    tiles = -(-rows // max(1, registers // wide))
    tile = -(-rows // tiles)
    panels = vectors // wide
    groups = max(1, min(-(-_PARTS // panels), rows // _GROUP))
    whole = max(1, rows // tile)
    each = -(-whole // groups)
    return Blocking(tile, wide, panels, -(-whole // each), each, tiles > 1)


def parts_of(value: Value, terms: int, lanes: int, registers: int) -> int:
    """Return the number of parts that threads may share of a product; 0 for none."""
    if value.op != "matmul":
        return 0
    rows = value.shape[0]
    if len(value.shape) == 1:
        return rows // _ROWS if rows % _ROWS == 0 and rows * terms >= _SHARED else 0
    blocking = blocking_of(value.shape, lanes, registers)
    return blocking.panels * blocking.groups


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
        """Multiply matrices, block by block of the terms."""
        blocking = blocking_of(self.value.shape, self.lanes, self.registers)
        left, *right = operands(self.values, self.number)
        factors = self._factors(left, blocking.tile)
        blocks, offset = [], 0
        for operand in right:
            terms = self.values[operand].shape[0]
            for k in range(0, terms, _BLOCK):
                blocks.append(_Block(operand, offset, k, min(k + _BLOCK, terms)))
            offset += terms
        longest = max(block.stop - block.start for block in blocks)
        packed = scratch("packed", longest * blocking.vectors * self.lanes, "float32")
        statements = packed.allocation() if blocking.packs else []
        # All tiles use the same memory: LLVM keeps it in registers through all loops.
        sums = [
            [scratch("sum", self.lanes, "float32") for _ in range(blocking.vectors)]
            for _ in range(blocking.tile)
        ]
        statements += [statement for row in sums for memory in row for statement in memory.allocation()]
        for block in blocks:
            statements += self._block(block, blocking, packed, sums, factors, block is not blocks[0])
        return statements

    def _block(
        self,
        block: _Block,
        blocking: Blocking,
        packed: Scratch,
        sums: list[list[Scratch]],
        factors: _Factors,
        adds: bool,
    ) -> list[Any]:
        """Add the products of a block's terms to the result; `adds`: whether sums have begun."""
        width, tile, rows = blocking.vectors * self.lanes, blocking.tile, self.value.shape[0]
        whole = rows // tile

        def tiles_of(count: int, column: Any) -> Body:
            return lambda row: self._tile(row, sums[:count], column, blocking, factors, block, packed, adds)

        def last(column: Any) -> list[Any]:
            return tiles_of(rows - whole * tile, column)(const(whole * tile)) if rows > whole * tile else []

        def pack(column: Any) -> list[Any]:
            return self._pack(block, column, blocking.vectors, packed) if blocking.packs else []

        def panel(column: Any) -> list[Any]:
            return [*pack(column), *loop(0, whole * tile, tile, tiles_of(tile, column)), *last(column)]

        if self.span is None:
            return loop(0, blocking.panels * width, width, panel)
        first, stop = self.span
        i = tirx.Var("i", "int64")
        if blocking.groups == 1:
            return [serial_loop(i, stop - first, panel((first + i) * width))]
        part, group = tirx.Var("part", "int64"), tirx.Var("group", "int64")
        column = tirx.floordiv(part, const(blocking.groups)) * width
        statements = [
            tirx.Bind(part, first + i),
            tirx.Bind(group, tirx.floormod(part, const(blocking.groups))),
        ]
        if blocking.packs:
            begins = tirx.any(group.equal(const(0)), i.equal(const(0)))
            statements.append(tirx.IfThenElse(begins, sequence(pack(column)), None))
        t, tiles = tirx.Var("t", "int64"), const(blocking.tiles)
        begin = group * tiles
        count = tirx.min(tiles, const(whole) - begin)
        statements.append(serial_loop(t, count, tiles_of(tile, column)((begin + t) * tile)))
        rest = last(column)
        if rest:
            ends = group.equal(const(blocking.groups - 1))
            statements.append(tirx.IfThenElse(ends, sequence(rest), None))
        return [serial_loop(i, stop - first, statements)]

    def _pack(self, block: _Block, column: Any, vectors: int, packed: Scratch) -> list[Any]:
        """Copy the right matrix's numbers of a panel, side by side."""
        lanes, width = self.lanes, padded(self.value.shape[1])

        def term(k: Any) -> list[Any]:
            statements = []
            for n in range(vectors):
                read, value = self.read(block.operand, k * width + column + n * lanes, lanes)
                at = ((k - block.start) * vectors + n) * lanes
                statements += [*read, packed.store(value, at, lanes)]
            return statements

        return loop(block.start, block.stop, 1, term)

    def _factors(self, left: int, tile: int) -> _Factors:
        """Return the left matrix's numbers; a constant is packed in tiles."""
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
        sums: list[list[Scratch]],
        column: Any,
        blocking: Blocking,
        factors: _Factors,
        block: _Block,
        packed: Scratch,
        adds: bool,
    ) -> list[Any]:
        """Add a block's terms to the sums of some rows of a panel."""
        lanes, wide, width = self.lanes, blocking.vectors, padded(self.value.shape[1])
        memories = [(row, n, memory) for row, own in enumerate(sums) for n, memory in enumerate(own)]

        def place(row: int, n: int) -> Any:
            return (first + row) * width + column + n * lanes

        statements = []
        for row, n, memory in memories:
            begin = self.result.load(place(row, n), lanes) if adds else splat(0.0, "float32", lanes)
            statements.append(memory.store(begin, 0, lanes))

        def term(k: Any) -> list[Any]:
            body, loaded = [], []
            for n in range(wide):
                if blocking.packs:
                    value = tirx.Var("b", vector_type("float32", lanes))
                    at = ((k - block.start) * wide + n) * lanes
                    body.append(tirx.Bind(value, packed.load(at, lanes)))
                else:
                    read, value = self.read(block.operand, k * width + column + n * lanes, lanes)
                    body += read
                loaded.append(value)
            for row, own in enumerate(sums):
                read, value = factors(first, row, k + block.offset)
                factor = tirx.Var("factor", vector_type("float32", lanes))
                body += [*read, tirx.Bind(factor, broadcast(value, lanes))]
                for n, memory in enumerate(own):
                    body.append(memory.store(memory.load(0, lanes) + factor * loaded[n], 0, lanes))
            return body

        statements += loop(block.start, block.stop, 1, term)
        for row, n, memory in memories:
            statements += self.result.store(place(row, n), memory.load(0, lanes), lanes)
        return statements
