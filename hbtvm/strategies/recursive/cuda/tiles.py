"""Products of two matrices of a node on GPUs: a block computes a tile of one.

for part of the terms: parts of both operands go to shared memory; each thread adds to the sums of some
    rows and columns
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from hbtvm.recursive.cell import Shape
from hbtvm.schedules.statements import Scratch, scratch, sequence
from hbtvm.strategies.recursive.cuda.step import block_barrier, const, where, zero
from hbtvm.strategies.recursive.cuda.values import DeviceVectors
from hbtvm.strategies.recursive.nests import operands, padded
from hbtvm.strategies.recursive.products import serial_loop

_OWN = 4  # rows, and columns, that a thread sums
_TERMS = 16  # terms whose operands are in shared memory together


@dataclass(frozen=True)
class Tile:
    """What a block of so many threads computes."""

    threads: int

    @property
    def grid(self) -> tuple[int, int]:
        """Threads as rows and columns."""
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
        """Numbers of shared memory."""
        rows, columns = self.shape
        return _TERMS * (rows + 1 + columns)

    def panels(self, shape: Shape) -> int:
        """Tiles of a matrix."""
        rows, columns = self.shape
        return -(-shape[0] // rows) * -(-padded(shape[1]) // columns)


class TiledProduct:
    """A product of two matrices.

    `number`: the value's.
    `tile`: what a block computes.
    `vectors`: expressions at the node.
    `shared`, `thread`: the block's memory, and the thread's number.
    `store`: makes the statements that put a number at a place of the result.
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
        mine = tirx.truncdiv(self._thread, const(columns_of_grid))
        mine_across = tirx.truncmod(self._thread, const(columns_of_grid))
        sums = scratch("sums", _OWN * _OWN, "float32")
        made: list[Any] = [
            tirx.Bind(row, tirx.truncdiv(panel, across) * const(_OWN * rows_of_grid)),
            tirx.Bind(column, tirx.truncmod(panel, across) * const(_OWN * columns_of_grid)),
            *sums.made(),
            *(sums.store(zero(), i) for i in range(_OWN * _OWN)),
        ]
        left, *right = operands(self._values, self._number)
        at = 0
        for one in right:
            terms = self._values[one].shape[0]
            part, k = tirx.Var("part", "int64"), tirx.Var("k", "int64")
            start = part * const(_TERMS)
            body = [
                *self._fill_left(left, at, terms, rows, start, row),
                *self._fill_right(one, terms, columns, start, column),
                block_barrier(),
                serial_loop(k, const(_TERMS), self._term(k, sums, mine, mine_across)),
                block_barrier(),
            ]
            made.append(serial_loop(part, const(-(-terms // _TERMS)), body))
            at += terms
        for i in range(_OWN):
            for j in range(_OWN):
                own = row + mine + const(i * rows_of_grid)
                across_at = column + mine_across + const(j * columns_of_grid)
                inside = tirx.all(own < const(rows), across_at < const(padded(columns)))
                place = own * const(padded(columns)) + across_at
                stores = sequence(self._store(place, sums.load(i * _OWN + j)))
                made.append(tirx.IfThenElse(inside, stores, None))
        return made

    def _term(self, k: Any, sums: Scratch, mine: Any, across: Any) -> list[Any]:
        """One term of all sums of a thread."""
        rows, columns = self._tile.grid
        tile, behind = self._tile.shape[0] + 1, self._tile.shape[1]
        made: list[Any] = []
        x, y = scratch("x", _OWN, "float32"), scratch("y", _OWN, "float32")
        made += [*x.made(), *y.made()]
        for i in range(_OWN):
            place = k * const(tile) + mine + const(i * rows)
            made.append(x.store(tirx.BufferLoad(self._shared, [place]), i))
        for j in range(_OWN):
            place = const(_TERMS * tile) + k * const(behind) + across + const(j * columns)
            made.append(y.store(tirx.BufferLoad(self._shared, [place]), j))
        for i in range(_OWN):
            for j in range(_OWN):
                n = i * _OWN + j
                made.append(sums.store(sums.load(n) + x.load(i) * y.load(j), n))
        return made

    def _fill_left(self, number: int, at: int, terms: int, rows: int, start: Any, row: Any) -> list[Any]:
        """Terms of a tile's rows, as (term, row); a number behind each term's, so that banks differ."""
        tall, width = self._tile.shape[0], padded(self._values[number].shape[1])

        def one(e: Any) -> tuple[Any, Any, Any]:
            k, i = tirx.truncmod(e, const(_TERMS)), tirx.truncdiv(e, const(_TERMS))
            term, own = start + k, row + i
            place = tirx.min(own, const(rows - 1)) * const(width)
            place = place + const(at) + tirx.min(term, const(terms - 1))
            inside = tirx.all(term < const(terms), own < const(rows))
            return place, inside, k * const(tall + 1) + i

        return self._fill(number, _TERMS * tall, one)

    def _fill_right(self, number: int, terms: int, columns: int, start: Any, column: Any) -> list[Any]:
        """Terms of a tile's columns, as (term, column)."""
        tall, wide = self._tile.shape
        width = padded(columns)

        def one(e: Any) -> tuple[Any, Any, Any]:
            k, j = tirx.truncdiv(e, const(wide)), tirx.truncmod(e, const(wide))
            term, own = start + k, column + j
            place = tirx.min(term, const(terms - 1)) * const(width) + tirx.min(own, const(columns - 1))
            inside = tirx.all(term < const(terms), own < const(columns))
            return place, inside, const(_TERMS * (tall + 1)) + e

        return self._fill(number, _TERMS * wide, one)

    def _fill(
        self,
        number: int,
        count: int,
        one: Callable[[Any], tuple[Any, Any, Any]],
    ) -> list[Any]:
        """Put numbers of a value into shared memory; `one` tells where each is, whether, and where it goes.

        Their count is a multiple of the block's threads.
        """
        n, e, at = (tirx.Var(name, "int64") for name in ("n", "e", "at"))
        place, inside, to = one(e)
        moved = self._vectors.moved(at)
        found = moved.of(number)
        body = [
            tirx.Bind(e, n * const(self._tile.threads) + self._thread),
            tirx.Bind(at, place),
            *moved.statements,
            tirx.BufferStore(self._shared, where(inside, found), [to]),
        ]
        return [serial_loop(n, const(count // self._tile.threads), body)]
