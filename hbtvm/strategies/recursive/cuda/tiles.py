"""Products of two matrices of a node on GPUs: a block computes a tile of a product.

for part of the terms: parts of both operands go to shared memory; each thread adds to the sums of some
    rows and columns
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from hbtvm.recursive.cell import Shape
from hbtvm.schedules.statements import Scratch, const, registers, sequence
from hbtvm.strategies.recursive.cuda.step import block_barrier, where, zero
from hbtvm.strategies.recursive.cuda.values import DeviceVectors
from hbtvm.strategies.recursive.nests import operands, padded
from hbtvm.strategies.recursive.products import serial_loop

_OWN = 4  # rows, and columns, that a thread sums
_TERMS = 16  # terms whose operands are in shared memory together


@dataclass(frozen=True)
class Tile:
    """The tile that a block computes."""

    threads: int

    @property
    def grid(self) -> tuple[int, int]:
        """Rows and columns of threads."""
        rows = 1
        while 4 * rows * rows <= self.threads:
            rows *= 2
        return rows, self.threads // rows

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of a tile."""
        rows, columns = self.grid
        return _OWN * rows, _OWN * columns

    @property
    def shared_numbers(self) -> int:
        """Size of shared memory in numbers."""
        rows, columns = self.shape
        return _TERMS * (rows + 1 + columns)

    def panels(self, shape: Shape) -> int:
        """Return the number of tiles of a matrix."""
        rows, columns = self.shape
        return -(-shape[0] // rows) * -(-padded(shape[1]) // columns)


class TiledProduct:
    """A product of two matrices.

    `number`: the value's number.
    `tile`: the block's tile.
    `vectors`: expressions at the node.
    `shared`, `thread`: the block's memory, and the thread's number.
    `store`: returns statements that store a number at a place of the result.
    """

    def __init__(
        self,
        number: int,
        tile: Tile,
        vectors: DeviceVectors,
        shared: Any,
        thread: Any,
        store: Callable[[Any, Any], list[Any]],
    ) -> None:
        self._number, self._tile, self._vectors, self._store = number, tile, vectors, store
        self._shared, self._thread = shared, thread
        self._values = vectors.facts.values

    def statements(self, panel: Any) -> list[Any]:
        """Compute and store a tile."""
        rows, columns = self._values[self._number].shape
        rows_of_grid, columns_of_grid = self._tile.grid
        row, column = tirx.Var("row", "int64"), tirx.Var("column", "int64")
        across = const(-(-padded(columns) // (_OWN * columns_of_grid)))
        thread_row = tirx.truncdiv(self._thread, const(columns_of_grid))
        thread_column = tirx.truncmod(self._thread, const(columns_of_grid))
        sums = registers("sums", _OWN * _OWN, "float32")
        statements: list[Any] = [
            tirx.Bind(row, tirx.truncdiv(panel, across) * const(_OWN * rows_of_grid)),
            tirx.Bind(column, tirx.truncmod(panel, across) * const(_OWN * columns_of_grid)),
            *sums.allocation(),
            *(sums.store(zero(), i) for i in range(_OWN * _OWN)),
        ]
        left, *right = operands(self._values, self._number)
        at = 0
        for operand in right:
            terms = self._values[operand].shape[0]
            part, k = tirx.Var("part", "int64"), tirx.Var("k", "int64")
            start = part * const(_TERMS)
            body = [
                *self._fill_left(left, at, terms, rows, start, row),
                *self._fill_right(operand, terms, columns, start, column),
                block_barrier(),
                serial_loop(k, const(_TERMS), self._term(k, sums, thread_row, thread_column)),
                block_barrier(),
            ]
            statements.append(serial_loop(part, const(-(-terms // _TERMS)), body))
            at += terms
        for i in range(_OWN):
            for j in range(_OWN):
                row_at = row + thread_row + const(i * rows_of_grid)
                across_at = column + thread_column + const(j * columns_of_grid)
                inside = tirx.all(row_at < const(rows), across_at < const(padded(columns)))
                place = row_at * const(padded(columns)) + across_at
                stores = sequence(self._store(place, sums.load(i * _OWN + j)))
                statements.append(tirx.IfThenElse(inside, stores, None))
        return statements

    def _term(self, k: Any, sums: Scratch, thread_row: Any, across: Any) -> list[Any]:
        """Add one term to all sums of a thread."""
        rows, columns = self._tile.grid
        tile, behind = self._tile.shape[0] + 1, self._tile.shape[1]
        statements: list[Any] = []
        x, y = registers("x", _OWN, "float32"), registers("y", _OWN, "float32")
        statements += [*x.allocation(), *y.allocation()]
        for i in range(_OWN):
            place = k * const(tile) + thread_row + const(i * rows)
            statements.append(x.store(tirx.BufferLoad(self._shared, [place]), i))
        for j in range(_OWN):
            place = const(_TERMS * tile) + k * const(behind) + across + const(j * columns)
            statements.append(y.store(tirx.BufferLoad(self._shared, [place]), j))
        for i in range(_OWN):
            for j in range(_OWN):
                n = i * _OWN + j
                statements.append(sums.store(sums.load(n) + x.load(i) * y.load(j), n))
        return statements

    def _fill_left(self, number: int, at: int, terms: int, rows: int, start: Any, row: Any) -> list[Any]:
        """Copy the terms of a tile's rows, as (term, row), with a padding number per term to spread banks."""
        tall, width = self._tile.shape[0], padded(self._values[number].shape[1])

        def places(e: Any) -> tuple[Any, Any, Any]:
            k, i = tirx.truncmod(e, const(_TERMS)), tirx.truncdiv(e, const(_TERMS))
            term, row_at = start + k, row + i
            place = tirx.min(row_at, const(rows - 1)) * const(width)
            place = place + const(at) + tirx.min(term, const(terms - 1))
            inside = tirx.all(term < const(terms), row_at < const(rows))
            return place, inside, k * const(tall + 1) + i

        return self._fill(number, _TERMS * tall, places)

    def _fill_right(self, number: int, terms: int, columns: int, start: Any, column: Any) -> list[Any]:
        """Copy the terms of a tile's columns, as (term, column)."""
        tall, wide = self._tile.shape
        width = padded(columns)

        def places(e: Any) -> tuple[Any, Any, Any]:
            k, j = tirx.truncdiv(e, const(wide)), tirx.truncmod(e, const(wide))
            term, column_at = start + k, column + j
            place = tirx.min(term, const(terms - 1)) * const(width) + tirx.min(column_at, const(columns - 1))
            inside = tirx.all(term < const(terms), column_at < const(columns))
            return place, inside, const(_TERMS * (tall + 1)) + e

        return self._fill(number, _TERMS * wide, places)

    def _fill(
        self,
        number: int,
        count: int,
        places: Callable[[Any], tuple[Any, Any, Any]],
    ) -> list[Any]:
        """Copy `count` numbers of a value to shared memory, a multiple of the block's threads.

        `places`: from an index to the number's place, whether it exists, and its place in shared memory.
        """
        n, e, at = (tirx.Var(name, "int64") for name in ("n", "e", "at"))
        place, inside, to = places(e)
        moved = self._vectors.moved(at)
        value = moved.of(number)
        body = [
            tirx.Bind(e, n * const(self._tile.threads) + self._thread),
            tirx.Bind(at, place),
            *moved.statements,
            tirx.BufferStore(self._shared, where(inside, value), [to]),
        ]
        return [serial_loop(n, const(count // self._tile.threads), body)]
