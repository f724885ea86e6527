"""Whole values: products of states, softmax, concat, slice, reshape and outer.

Operands and results are in memory, row by row (`hbtvm.strategies.recursive.nests`).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import tirx

from hbtvm.recursive.cell import Shape
from hbtvm.schedules.statements import broadcast, const, scratch, splat
from hbtvm.strategies.recursive.matrices import MatrixProduct
from hbtvm.strategies.recursive.nests import flat, padded, row_starts
from hbtvm.strategies.recursive.vectors import Vectors
from hbtvm.strategies.recursive.whole import Body, Result, Span, Whole, loop


def whole_statements(
    number: int, here: Vectors, result: Result, lanes: int, registers: int, span: Span = None
) -> list[Any]:
    """Return the statements that compute a whole value of one node; see `Whole`."""
    kind = MatrixProduct if here.facts.values[number].op == "matmul" else _Other
    return kind(number, here, result, lanes, registers, span).statements()


class _Other(Whole):
    """Whole values other than products."""

    def body(self) -> list[Any]:
        """Return the statements of the operator's method."""
        statements: list[Any] = getattr(self, f"_{self.value.op}")()
        return statements

    def _copied(self, number: int, start: Any, to: Any, count: int) -> list[Any]:
        """Copy neighbours: whole vectors, then single numbers."""
        vectors = count // self.lanes * self.lanes

        def copy(lanes: int) -> Body:
            def statements(at: Any) -> list[Any]:
                read, vector = self.read(number, at + start, lanes)
                return [*read, *self.result.store(at + to, vector, lanes)]

            return statements

        return [
            *loop(0, vectors, self.lanes, copy(self.lanes)),
            *loop(vectors, count, 1, copy(1)),
        ]

    def _concat(self) -> list[Any]:
        statements, at = [], 0
        for operand in self.value.of:
            shape = self.values[operand].shape
            count = flat(shape) if len(shape) > 1 else shape[0]
            statements += self._copied(operand, 0, const(at), count)
            at += count
        return statements

    def _slice(self) -> list[Any]:
        (source,) = self.value.of
        start = self.value.start * row_starts(self.value.shape)
        count = flat(self.value.shape) if len(self.value.shape) > 1 else self.value.shape[0]
        return self._copied(source, const(start), 0, count)

    def _reshape(self) -> list[Any]:
        (source,) = self.value.of
        shapes = self.values[source].shape, self.value.shape
        total = int(np.prod(self.value.shape))
        # Length of runs that stay contiguous.
        run = math.gcd(*(shape[1] if len(shape) > 1 else total for shape in shapes))

        def statements(which: Any) -> list[Any]:
            start, to = (_place(shape, which) for shape in shapes)
            return self._copied(source, start, to, run)

        return loop(0, total, run, statements)

    def _outer(self) -> list[Any]:
        left, right = self.value.of
        rows, columns = self.value.shape
        wide = padded(columns)

        def row(i: Any) -> list[Any]:
            statements, factor = self.read(left, i, 1)

            def vector(at: Any) -> list[Any]:
                read, numbers = self.read(right, at, self.lanes)
                product = broadcast(factor, self.lanes) * numbers
                return [*read, *self.result.store(i * wide + at, product, self.lanes)]

            return [*statements, *loop(0, wide, self.lanes, vector)]

        return loop(0, rows, 1, row)

    def _softmax(self) -> list[Any]:
        """Compute powers of differences from the largest number, then their shares."""
        (source,) = self.value.of
        count, lanes = self.value.shape[0], self.lanes
        largest, total = scratch("largest", lanes, "float32"), scratch("total", lanes, "float32")
        low = splat(-3.0e38, "float32", lanes)

        def inside(at: Any, value: Any, otherwise: Any) -> Any:
            places = at + tirx.Ramp(const(0), const(1), lanes) if lanes > 1 else at
            return tirx.Select(places < broadcast(const(count), lanes), value, otherwise)

        def most(at: Any) -> list[Any]:
            read, vector = self.read(source, at, lanes)
            current = largest.load(0, lanes)
            return [*read, largest.store(tirx.max(current, inside(at, vector, low)), 0, lanes)]

        found_most, top = self.reduced(largest, tirx.max)

        def power(at: Any) -> list[Any]:
            moved = self.here.moved(at, lanes)
            # Numbers beyond the end are undefined; leave out their powers.
            below = inside(at, moved.of(source) - broadcast(top, lanes), splat(0.0, "float32", lanes))
            exponential = moved.functions.shared(moved.functions.of("exp", below))
            term = inside(at, exponential, splat(0.0, "float32", lanes))
            summed = total.store(total.load(0, lanes) + term, 0, lanes)
            return [*moved.statements, *self.result.store(at, exponential, lanes), summed]

        found_total, sum_ = self.reduced(total, lambda a, b: a + b)

        def share(at: Any) -> list[Any]:
            return self.result.store(at, self.result.load(at, lanes) / broadcast(sum_, lanes), lanes)

        def all_of(body: Body) -> list[Any]:
            return loop(0, padded(count), lanes, body)

        return [
            *largest.allocation(),
            *total.allocation(),
            largest.store(low, 0, lanes),
            total.store(splat(0.0, "float32", lanes), 0, lanes),
            *all_of(most),
            *found_most,
            *all_of(power),
            *found_total,
            *all_of(share),
        ]


def _place(shape: Shape, which: Any) -> Any:
    """Return the place in memory of a value's `which`-th number."""
    if len(shape) == 1:
        return which
    columns, width = const(shape[1]), padded(shape[1])
    return tirx.floordiv(which, columns) * width + tirx.floormod(which, columns)
