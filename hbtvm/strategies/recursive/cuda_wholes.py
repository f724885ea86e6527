"""Steps on GPUs of values that are whole: products with states, softmax.

A block computes a panel of one value of one node:

- of a product of two matrices, a tile, of which each thread sums some rows and columns; parts of the
  operands are in shared memory;
- of a product of a matrix and a vector, some rows, each summed by a warp's threads together;
- of a softmax, all of it: each warp finds the largest number and the sum of powers by itself, which needs no
  barriers, and threads share the results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx

from hbtvm.schedules.statements import Scratch, scratch, sequence
from hbtvm.strategies.recursive.cuda_step import DeviceStep, block_barrier, const
from hbtvm.strategies.recursive.cuda_values import DeviceVectors
from hbtvm.strategies.recursive.nests import Nest, operands, padded
from hbtvm.strategies.recursive.products import serial_loop
from hbtvm.strategies.recursive.vectors import Place

WARP = 32
"""Threads of a warp."""

_OWN = 4
"""Rows, and columns, of a product of matrices that a thread sums."""

_TERMS = 16
"""Terms of a product of matrices whose operands are in shared memory together."""

_ROWS = 4
"""Rows of a matrix that a warp multiplies by a vector at a time."""

_LOW = -3.0e38
"""Below all numbers that a softmax is taken of."""

Body = Callable[[Any, Any, DeviceVectors], list[Any]]
"""From a place, the number there, and expressions at it, to what is done with it."""


class WholesStep(DeviceStep):
    """Whole values of one depth: a unit is a panel of one of them, of one node."""

    @property
    def tile(self) -> int:
        """A node by itself."""
        return 1

    @property
    def panels(self) -> int:
        """Panels of all values, one value's behind the other's."""
        return sum(self._panels(nest) for nest in self.nests)

    def is_before(self, which: int) -> bool:
        """See `DeviceStep`; values here read none of each other's."""
        return which not in self.which

    def shared_numbers(self) -> int:
        """See `DeviceStep`."""
        rows, columns = self._tile()
        products = any(self._kind(nest) == "matrices" for nest in self.nests)
        return _TERMS * (rows + 1 + columns) if products else 0

    def statements(self, level: Any, unit: Any) -> list[Any]:
        """See `DeviceStep`."""
        first, here, panel = (tirx.Var(name, "int64") for name in ("first", "here", "panel"))
        panels = const(self.panels)
        made: list[Any] = [
            tirx.Bind(first, self.parameters.first_row(level)),
            tirx.Bind(here, first + tirx.truncdiv(unit, panels)),
            tirx.Bind(panel, tirx.truncmod(unit, panels)),
        ]
        bodies, stops, at = [], list[Any](), 0
        for nest in self.nests:
            bodies.append(self._of_nest(nest, first, here, panel - const(at)))
            at += self._panels(nest)
            stops.append(panel < const(at))
        *others, body = bodies
        for stop, other in zip(reversed(stops[:-1]), reversed(others), strict=True):
            body = [tirx.IfThenElse(stop, sequence(other), sequence(body))]
        return [*made, *body]

    def _kind(self, nest: Nest) -> str:
        """What a nest's value is."""
        assert nest.whole is not None
        value = self.facts.values[nest.whole]
        if value.op != "matmul":
            return value.op
        return "vector" if len(value.shape) == 1 else "matrices"

    def _panels(self, nest: Nest) -> int:
        """Panels of a nest."""
        assert nest.whole is not None
        shape, kind = self.facts.values[nest.whole].shape, self._kind(nest)
        if kind == "vector":
            return -(-padded(shape[0]) // (self.blocking.threads // WARP * _ROWS))
        if kind == "matrices":
            rows, columns = self._tile()
            return -(-shape[0] // rows) * -(-padded(shape[1]) // columns)
        return 1

    def _grid(self) -> tuple[int, int]:
        """A block's threads as rows and columns of a product of matrices."""
        rows = 1
        while 4 * rows * rows <= self.blocking.threads:
            rows *= 2
        return rows, self.blocking.threads // rows

    def _tile(self) -> tuple[int, int]:
        """Rows and columns of a block's tile."""
        rows, columns = self._grid()
        return _OWN * rows, _OWN * columns

    def _of_nest(self, nest: Nest, first: Any, here: Any, panel: Any) -> list[Any]:
        assert nest.whole is not None
        vectors = self.vectors(Place(here, const(0), const(0)), first)
        for one in operands(self.facts.values, nest.whole):
            vectors.find(one)
        makers = {"vector": self._of_vector, "matrices": self._of_matrices, "softmax": self._softmax}
        made = makers[self._kind(nest)](_Result(self, nest, first, here), vectors, panel)
        return [*vectors.statements, *made]

    def _of_vector(self, result: _Result, vectors: DeviceVectors, panel: Any) -> list[Any]:
        """A product of a matrix and a vector."""
        matrix, vector = self.facts.values[result.number].of
        rows, terms = self.facts.values[matrix].shape
        n, lane, start = (tirx.Var(name, "int64") for name in ("n", "lane", "start"))
        warp = panel * const(self.blocking.threads // WARP) + tirx.truncdiv(self.thread, const(WARP))
        sums = scratch("sums", _ROWS, "float32")
        k, bounded = tirx.Var("k", "int64"), tirx.Var("bounded", "int64")
        moved = vectors.moved(bounded)
        x = _where(k < const(terms), moved.of(vector))
        made = [*moved.statements]
        for i in range(_ROWS):
            row = tirx.min(start + const(i), const(rows - 1))
            own = vectors.moved(row * const(padded(terms)) + bounded)
            found = own.of(matrix)
            made += [*own.statements, sums.store(sums.load(i) + found * x, i)]
        body = [
            tirx.Bind(k, n * const(WARP) + lane),
            tirx.Bind(bounded, tirx.min(k, const(terms - 1))),
            *made,
        ]
        ends = [one for i in range(_ROWS) for one in self._over_warp(sums, i, lambda a, b: a + b)]
        stores = []
        for i in range(_ROWS):
            row = start + const(i)
            found = _where(row < const(rows), sums.load(i))
            inside = sequence(result.store(row, found))
            stores.append(tirx.IfThenElse(row < const(padded(rows)), inside, None))
        return [
            tirx.Bind(lane, tirx.truncmod(self.thread, const(WARP))),
            tirx.Bind(start, warp * const(_ROWS)),
            *sums.made(),
            *(sums.store(_zero(), i) for i in range(_ROWS)),
            serial_loop(n, const(-(-terms // WARP)), body),
            *ends,
            tirx.IfThenElse(tirx.EQ(lane, const(0)), sequence(stores), None),
        ]

    def _softmax(self, result: _Result, vectors: DeviceVectors, panel: Any) -> list[Any]:
        """Powers of what the numbers are below the largest, each in its share of all powers."""
        (source,) = self.facts.values[result.number].of
        count, threads = self.facts.values[result.number].shape[0], self.blocking.threads
        lane = tirx.Var("lane", "int64")
        most, total = scratch("most", 1, "float32"), scratch("total", 1, "float32")

        def each(step: int, start: Any, stop: int, body: Body) -> Any:
            n, k, bounded = (tirx.Var(name, "int64") for name in ("n", "k", "bounded"))
            moved = vectors.moved(bounded)
            found = moved.of(source)
            inner = body(k, found, moved)
            own = [tirx.Bind(k, n * const(step) + start), tirx.Bind(bounded, tirx.min(k, const(count - 1)))]
            return serial_loop(n, const(-(-stop // step)), [*own, *moved.statements, *inner])

        def largest(k: Any, found: Any, moved: DeviceVectors) -> list[Any]:
            return [most.store(tirx.max(most.load(0), found), 0)]

        def power(found: Any, moved: DeviceVectors) -> Any:
            return moved.functions.shared(moved.functions.exp(found - most.load(0)))

        def added(k: Any, found: Any, moved: DeviceVectors) -> list[Any]:
            return [total.store(total.load(0) + _where(k < const(count), power(found, moved)), 0)]

        def share(k: Any, found: Any, moved: DeviceVectors) -> list[Any]:
            made = _where(k < const(count), power(found, moved) / total.load(0))
            inside = k < const(padded(count))
            return [tirx.IfThenElse(inside, sequence(result.store(k, made)), None)]

        return [
            tirx.Bind(lane, tirx.truncmod(self.thread, const(WARP))),
            *most.made(),
            *total.made(),
            most.store(tirx.const(_LOW, "float32"), 0),
            total.store(_zero(), 0),
            each(WARP, lane, count, largest),
            *self._over_warp(most, 0, tirx.max),
            *_from_first(most),
            each(WARP, lane, count, added),
            *self._over_warp(total, 0, lambda a, b: a + b),
            *_from_first(total),
            each(threads, self.thread, padded(count), share),
        ]

    def _of_matrices(self, result: _Result, vectors: DeviceVectors, panel: Any) -> list[Any]:
        """A product of two matrices."""
        columns = self.facts.values[result.number].shape[1]
        rows_of_grid, columns_of_grid = self._grid()
        row, column = tirx.Var("row", "int64"), tirx.Var("column", "int64")
        across = const(-(-padded(columns) // (_OWN * columns_of_grid)))
        mine = tirx.truncdiv(self.thread, const(columns_of_grid))
        mine_across = tirx.truncmod(self.thread, const(columns_of_grid))
        sums = scratch("sums", _OWN * _OWN, "float32")
        made: list[Any] = [
            tirx.Bind(row, tirx.truncdiv(panel, across) * const(_OWN * rows_of_grid)),
            tirx.Bind(column, tirx.truncmod(panel, across) * const(_OWN * columns_of_grid)),
            *sums.made(),
            *(sums.store(_zero(), i) for i in range(_OWN * _OWN)),
        ]
        left, *right = operands(self.facts.values, result.number)
        at = 0
        for one in right:
            terms = self.facts.values[one].shape[0]
            part, k = tirx.Var("part", "int64"), tirx.Var("k", "int64")
            start = part * const(_TERMS)
            body = [
                *self._fill_left(left, at, terms, result.rows, vectors, start, row),
                *self._fill_right(one, terms, columns, vectors, start, column),
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
                inside = tirx.all(own < const(result.rows), across_at < const(padded(columns)))
                place = own * const(padded(columns)) + across_at
                stores = sequence(result.store(place, sums.load(i * _OWN + j)))
                made.append(tirx.IfThenElse(inside, stores, None))
        return made

    def _term(self, k: Any, sums: Scratch, mine: Any, across: Any) -> list[Any]:
        """One term of all sums of a thread."""
        rows, columns = self._grid()
        tile, behind = self._tile()[0] + 1, self._tile()[1]
        made: list[Any] = []
        x, y = scratch("x", _OWN, "float32"), scratch("y", _OWN, "float32")
        made += [*x.made(), *y.made()]
        for i in range(_OWN):
            place = k * const(tile) + mine + const(i * rows)
            made.append(x.store(tirx.BufferLoad(self.shared, [place]), i))
        for j in range(_OWN):
            place = const(_TERMS * tile) + k * const(behind) + across + const(j * columns)
            made.append(y.store(tirx.BufferLoad(self.shared, [place]), j))
        for i in range(_OWN):
            for j in range(_OWN):
                n = i * _OWN + j
                made.append(sums.store(sums.load(n) + x.load(i) * y.load(j), n))
        return made

    def _fill_left(
        self, number: int, at: int, terms: int, rows: int, vectors: DeviceVectors, start: Any, row: Any
    ) -> list[Any]:
        """Terms of a tile's rows, as (term, row); a number behind each term's, so that banks differ."""
        tall, width = self._tile()[0], padded(self.facts.values[number].shape[1])

        def one(e: Any) -> tuple[Any, Any, Any]:
            k, i = tirx.truncmod(e, const(_TERMS)), tirx.truncdiv(e, const(_TERMS))
            term, own = start + k, row + i
            place = tirx.min(own, const(rows - 1)) * const(width)
            place = place + const(at) + tirx.min(term, const(terms - 1))
            inside = tirx.all(term < const(terms), own < const(rows))
            return place, inside, k * const(tall + 1) + i

        return self._fill(number, _TERMS * tall, vectors, one)

    def _fill_right(
        self, number: int, terms: int, columns: int, vectors: DeviceVectors, start: Any, column: Any
    ) -> list[Any]:
        """Terms of a tile's columns, as (term, column)."""
        tall, wide = self._tile()
        width = padded(columns)

        def one(e: Any) -> tuple[Any, Any, Any]:
            k, j = tirx.truncdiv(e, const(wide)), tirx.truncmod(e, const(wide))
            term, own = start + k, column + j
            place = tirx.min(term, const(terms - 1)) * const(width) + tirx.min(own, const(columns - 1))
            inside = tirx.all(term < const(terms), own < const(columns))
            return place, inside, const(_TERMS * (tall + 1)) + e

        return self._fill(number, _TERMS * wide, vectors, one)

    def _fill(
        self,
        number: int,
        count: int,
        vectors: DeviceVectors,
        one: Callable[[Any], tuple[Any, Any, Any]],
    ) -> list[Any]:
        """Put numbers of a value into shared memory; `one` tells where each is, whether, and where it goes.

        Their count is a multiple of the block's threads.
        """
        n, e, at = (tirx.Var(name, "int64") for name in ("n", "e", "at"))
        place, inside, to = one(e)
        moved = vectors.moved(at)
        found = moved.of(number)
        body = [
            tirx.Bind(e, n * const(self.blocking.threads) + self.thread),
            tirx.Bind(at, place),
            *moved.statements,
            tirx.BufferStore(self.shared, _where(inside, found), [to]),
        ]
        return [serial_loop(n, const(count // self.blocking.threads), body)]

    def _over_warp(self, memory: Scratch, at: int, combine: Callable[[Any, Any], Any]) -> list[Any]:
        """Make a warp's numbers one, which its first thread then has."""
        made, by = [], WARP // 2
        while by:
            other = _shuffled("tvm_warp_shuffle_down", memory.load(at), by)
            made.append(memory.store(combine(memory.load(at), other), at))
            by //= 2
        return made


class _Result:
    """Where a nest's value goes.

    Attributes
    ----------
    number, rows
        The value's, and how many rows it has.
    """

    def __init__(self, step: DeviceStep, nest: Nest, first: Any, here: Any) -> None:
        assert nest.whole is not None
        self._step, self._nest, self._first, self._here = step, nest, first, here
        self.number: int = nest.whole
        self.rows = step.facts.values[self.number].shape[0]

    def store(self, at: Any, value: Any) -> list[Any]:
        """Put a number at a place."""
        step, here = self._step, self._here
        made = [step.store_state(start, here, at, value) for start in self._nest.states]
        if self.number in self._nest.stored:
            made += step.store(self.number, here - self._first, at, value)
        return made


def _from_first(memory: Scratch) -> list[Any]:
    """Give all threads of a warp the number of its first one."""
    return [memory.store(_shuffled("tvm_warp_shuffle", memory.load(0), 0), 0)]


def _shuffled(how: str, value: Any, which: int) -> Any:
    """The number of another thread of the warp, all of which take part."""
    every = tirx.const(0xFFFFFFFF, "uint32")
    own, width = (tirx.const(n, "int32") for n in (which, WARP))
    return tirx.call_intrin("float32", f"tirx.{how}", every, value, own, width, width)


def _where(condition: Any, value: Any) -> Any:
    """A number, or zero where a condition does not hold."""
    return tirx.Select(condition, value, _zero())


def _zero() -> Any:
    return tirx.const(0.0, "float32")
