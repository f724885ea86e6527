"""Steps of whole values on GPUs: products with states, softmax.

A block computes a panel of one value of one node:

- of a product of two matrices, a tile (`hbtvm.strategies.recursive.cuda.tiles`);
- of a product of a matrix and a vector, some rows, each summed by a warp's threads together;
- of a softmax, all of it: each warp computes the largest number and the sum of powers, which needs no
  barriers, and threads share the results.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tvm import tirx

from hbtvm.schedules.statements import Scratch, const, registers, sequence
from hbtvm.strategies.recursive.cuda.step import DeviceStep, where, zero
from hbtvm.strategies.recursive.cuda.tiles import Tile, TiledProduct
from hbtvm.strategies.recursive.cuda.values import DeviceVectors
from hbtvm.strategies.recursive.nests import Nest, operands, padded
from hbtvm.strategies.recursive.products import serial_loop
from hbtvm.strategies.recursive.vectors import Place

WARP = 32  # threads of a warp
_ROWS = 4  # rows of a matrix that a warp multiplies by a vector at a time
_LOW = -3.0e38  # below all inputs of a softmax

Body = Callable[[Any, Any, DeviceVectors], list[Any]]
"""From a place, the number there, and expressions at it, to statements."""


class WholesStep(DeviceStep):
    """Whole values of one depth: a unit is a panel of one value of one node."""

    @property
    def tile(self) -> int:
        """Number of nodes of a tile: 1."""
        return 1

    @property
    def panels(self) -> int:
        """Number of panels of all values, value after value."""
        return sum(self._panels(nest) for nest in self.nests)

    def is_before(self, which: int) -> bool:
        """See `DeviceStep`; the step's values don't read each other."""
        return which not in self.which

    def shared_numbers(self) -> int:
        products = any(self._kind(nest) == "matrices" for nest in self.nests)
        return Tile(self.blocking.threads).shared_numbers if products else 0

    def statements(self, level: Any, unit: Any) -> list[Any]:
        first, here, panel = (tirx.Var(name, "int64") for name in ("first", "here", "panel"))
        panels = const(self.panels)
        bindings: list[Any] = [
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
        return [*bindings, *body]

    def _kind(self, nest: Nest) -> str:
        """Return the kind of a nest's value: its operator, or ``"vector"`` or ``"matrices"`` for products."""
        assert nest.whole is not None
        value = self.facts.values[nest.whole]
        if value.op != "matmul":
            return value.op
        return "vector" if len(value.shape) == 1 else "matrices"

    def _panels(self, nest: Nest) -> int:
        """Return the number of panels of a nest."""
        assert nest.whole is not None
        shape, kind = self.facts.values[nest.whole].shape, self._kind(nest)
        if kind == "vector":
            return -(-padded(shape[0]) // (self.blocking.threads // WARP * _ROWS))
        if kind == "matrices":
            return Tile(self.blocking.threads).panels(shape)
        return 1

    def _of_nest(self, nest: Nest, first: Any, here: Any, panel: Any) -> list[Any]:
        assert nest.whole is not None
        vectors = self.vectors(Place(here, const(0), const(0)), first)
        for operand in operands(self.facts.values, nest.whole):
            vectors.find(operand)
        result, kind = _Result(self, nest, first, here), self._kind(nest)
        if kind == "matrices":
            tile = Tile(self.blocking.threads)
            product = TiledProduct(nest.whole, tile, vectors, self.shared, self.thread, result.store)
            return [*vectors.statements, *product.statements(panel)]
        makers = {"vector": self._of_vector, "softmax": self._softmax}
        return [*vectors.statements, *makers[kind](result, vectors, panel)]

    def _of_vector(self, result: _Result, vectors: DeviceVectors, panel: Any) -> list[Any]:
        """Multiply a matrix by a vector."""
        matrix, vector = self.facts.values[result.number].of
        rows, terms = self.facts.values[matrix].shape
        n, lane, start = (tirx.Var(name, "int64") for name in ("n", "lane", "start"))
        warp = panel * const(self.blocking.threads // WARP) + tirx.truncdiv(self.thread, const(WARP))
        sums = registers("sums", _ROWS, "float32")
        k, bounded = tirx.Var("k", "int64"), tirx.Var("bounded", "int64")
        moved = vectors.moved(bounded)
        x = moved.of(vector)
        terms_of_rows = [*moved.statements]
        for i in range(_ROWS):
            row = tirx.min(start + const(i), const(rows - 1))
            matrix_row = vectors.moved(row * const(padded(terms)) + bounded)
            number = matrix_row.of(matrix)
            # A multiplication of the last term by zero, instead, is NaN if the term is infinite.
            total = tirx.Select(k < const(terms), sums.load(i) + number * x, sums.load(i))
            terms_of_rows += [*matrix_row.statements, sums.store(total, i)]
        body = [
            tirx.Bind(k, n * const(WARP) + lane),
            tirx.Bind(bounded, tirx.min(k, const(terms - 1))),
            *terms_of_rows,
        ]
        ends = [statement for i in range(_ROWS) for statement in self._over_warp(sums, i, lambda a, b: a + b)]
        stores = []
        for i in range(_ROWS):
            row = start + const(i)
            number = where(row < const(rows), sums.load(i))
            inside = sequence(result.store(row, number))
            stores.append(tirx.IfThenElse(row < const(padded(rows)), inside, None))
        return [
            tirx.Bind(lane, tirx.truncmod(self.thread, const(WARP))),
            tirx.Bind(start, warp * const(_ROWS)),
            *sums.allocation(),
            *(sums.store(zero(), i) for i in range(_ROWS)),
            serial_loop(n, const(-(-terms // WARP)), body),
            *ends,
            tirx.IfThenElse(tirx.EQ(lane, const(0)), sequence(stores), None),
        ]

    def _softmax(self, result: _Result, vectors: DeviceVectors, panel: Any) -> list[Any]:
        """Compute powers of differences from the largest number, divided by their sum."""
        (source,) = self.facts.values[result.number].of
        count, threads = self.facts.values[result.number].shape[0], self.blocking.threads
        lane = tirx.Var("lane", "int64")
        most, total = registers("most", 1, "float32"), registers("total", 1, "float32")

        def loop_over(step: int, start: Any, stop: int, body: Body) -> Any:
            n, k, bounded = (tirx.Var(name, "int64") for name in ("n", "k", "bounded"))
            moved = vectors.moved(bounded)
            number = moved.of(source)
            inner = body(k, number, moved)
            bindings = [
                tirx.Bind(k, n * const(step) + start),
                tirx.Bind(bounded, tirx.min(k, const(count - 1))),
            ]
            return serial_loop(n, const(-(-stop // step)), [*bindings, *moved.statements, *inner])

        def largest(k: Any, number: Any, moved: DeviceVectors) -> list[Any]:
            return [most.store(tirx.max(most.load(0), number), 0)]

        def power(number: Any, moved: DeviceVectors) -> Any:
            return moved.functions.shared(moved.functions.exp(number - most.load(0)))

        def added(k: Any, number: Any, moved: DeviceVectors) -> list[Any]:
            return [total.store(total.load(0) + where(k < const(count), power(number, moved)), 0)]

        def share(k: Any, number: Any, moved: DeviceVectors) -> list[Any]:
            quotient = where(k < const(count), power(number, moved) / total.load(0))
            inside = k < const(padded(count))
            return [tirx.IfThenElse(inside, sequence(result.store(k, quotient)), None)]

        return [
            tirx.Bind(lane, tirx.truncmod(self.thread, const(WARP))),
            *most.allocation(),
            *total.allocation(),
            most.store(tirx.const(_LOW, "float32"), 0),
            total.store(zero(), 0),
            loop_over(WARP, lane, count, largest),
            *self._over_warp(most, 0, tirx.max),
            *_from_first(most),
            loop_over(WARP, lane, count, added),
            *self._over_warp(total, 0, lambda a, b: a + b),
            *_from_first(total),
            loop_over(threads, self.thread, padded(count), share),
        ]

    def _over_warp(self, memory: Scratch, at: int, combine: Callable[[Any, Any], Any]) -> list[Any]:
        """Reduce a warp's numbers to one, in its first thread."""
        statements, by = [], WARP // 2
        while by:
            other = _shuffled("tvm_warp_shuffle_down", memory.load(at), by)
            statements.append(memory.store(combine(memory.load(at), other), at))
            by //= 2
        return statements


class _Result:
    """Memory of a nest's value; `number` is the value's number."""

    def __init__(self, step: DeviceStep, nest: Nest, first: Any, here: Any) -> None:
        assert nest.whole is not None
        self._step, self._nest, self._first, self._here = step, nest, first, here
        self.number: int = nest.whole

    def store(self, at: Any, value: Any) -> list[Any]:
        """Store a number at a place."""
        step, here = self._step, self._here
        statements = [step.store_state(start, here, at, value) for start in self._nest.states]
        if self.number in self._nest.stored:
            statements += step.store(self.number, here - self._first, at, value)
        return statements


def _from_first(memory: Scratch) -> list[Any]:
    """Broadcast the first thread's number to its warp."""
    return [memory.store(_shuffled("tvm_warp_shuffle", memory.load(0), 0), 0)]


def _shuffled(how: str, value: Any, which: int) -> Any:
    """Return another thread's number by a shuffle of the whole warp."""
    mask = tirx.const(0xFFFFFFFF, "uint32")
    thread, width = (tirx.const(n, "int32") for n in (which, WARP))
    return tirx.call_intrin("float32", f"tirx.{how}", mask, value, thread, width, width)
