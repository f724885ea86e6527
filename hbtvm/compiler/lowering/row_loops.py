"""Statements of a network's loops over a row's values (see `hbtvm.schedules.network.loops`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import sym, tirx

from hbtvm.compiler.lowering.indices import index_at
from hbtvm.operators.coupling import TOLERANCE
from hbtvm.schedules.statements import (
    Place,
    Scratch,
    any_lane,
    broadcast,
    scratch,
    sequence,
    serial,
    splat,
)
from hbtvm.strategies.network.row_loops import COUPLING, IMPUTATION

Array = Callable[[str, int, str], Scratch]
"""Returns an array by its name, number of elements, and dtype."""


@dataclass(frozen=True)
class Columns:
    """Columns of a stage, for a vector of rows."""

    first: Place  # the first column of the first row
    step: Any  # stride of columns, in elements

    def load(self, column: Any, lanes: int = 1, row: Any = 0) -> Any:
        """Return a column's values of `lanes` rows from `row` on."""
        return self.first.load(column * self.step + row, lanes)

    def store(self, value: Any, column: Any, lanes: int = 1, row: Any = 0) -> Any:
        """Return the statement that stores such values."""
        return self.first.store(value, column * self.step + row, lanes)


@dataclass(frozen=True)
class RowLoop:
    """An annotated loop: its result, and the operands of its call."""

    out: Columns
    inputs: Sequence[Columns]
    tables: Sequence[Place]
    sizes: Sequence[int]
    rows: int
    array: Array


def make_row_loop(loop: Any, array: Array = scratch) -> Any:
    """Return the replacement of an annotated loop of a lowered function.

    The loop is ``for row: for output: out[.., output, row] = call(..)``, with unit strides of rows unless
    there is a single row.

    `array`: returns a small array of the target.
    """
    inner = loop.body
    store = inner.body

    def at(index: Any, output: int = 0) -> Any:
        return index_at(index, {loop.loop_var: 0, inner.loop_var: output})

    def columns(buffer: Any, first: Any, second: Any) -> Columns:
        return Columns(Place(buffer, first), sym.Analyzer().simplify(second - first))

    name, *arguments = store.value.args
    loads = [argument for argument in arguments if not isinstance(argument, tirx.IntImm)]
    sizes = [int(argument.value) for argument in arguments if isinstance(argument, tirx.IntImm)]
    (index,) = store.indices
    out = columns(store.buffer, at(index), at(index, 1))
    build, count = _BUILDERS[str(name.value)]
    inputs = [
        columns(first.source, at(first.indices[0]), at(second.indices[0]))
        for first, second in zip(loads[0 : 2 * count : 2], loads[1 : 2 * count : 2], strict=True)
    ]
    tables = [Place(load.source, at(load.indices[0])) for load in loads[2 * count :]]
    return build(RowLoop(out, inputs, tables, sizes, int(loop.extent), array))


def _imputation(loop: RowLoop) -> Any:
    """Compute `hbtvm.operators.imputation.Imputation` for all rows together."""
    out, n, array = loop.out, loop.rows, loop.array
    (state, missing), (column, weight, intercept, low, high) = loop.inputs, loop.tables
    steps, width = loop.sizes

    def step(s: Any) -> Any:
        here, total = tirx.Var("here", "int64"), array("total", n, "float64")

        def add(f: Any) -> Any:
            term = broadcast(weight.load(s * width + f), n) * out.load(f, n)
            return total.store(total.load(0, n) + term, 0, n)

        # These comparisons keep NaN.
        least, most, sum_ = broadcast(low.load(s), n), broadcast(high.load(s), n), total.load(0, n)
        value = tirx.Select(sum_ < least, least, sum_)
        value = tirx.Select(value > most, most, value)
        marked = missing.load(here, n) != splat(0.0, "float64", n)
        work = sequence(
            [
                *total.allocation(),
                total.store(broadcast(intercept.load(s), n), 0, n),
                serial("f", width, add),
                out.store(tirx.Select(marked, value, out.load(here, n)), here, n),
            ]
        )
        # Few values are missing: skip features that are missing in no row.
        return sequence(
            [
                tirx.Bind(here, column.load(s).astype("int64")),
                tirx.IfThenElse(any_lane(marked, n), work, None),
            ]
        )

    begin = serial("f", width, lambda f: out.store(state.load(f, n), f, n))
    return sequence([begin, serial("step", steps, step)])


def _coupling(loop: RowLoop) -> Any:
    """Compute `hbtvm.operators.coupling.coupled` row by row: numbers of rounds differ."""
    return serial("row", loop.rows, lambda row: _coupled_row(loop, row))


def _coupled_row(loop: RowLoop, row: Any) -> Any:
    out, (pairs,), (classes, rounds), array = loop.out, loop.inputs, loop.sizes, loop.array
    diagonal, product = (array(name, classes, "float64") for name in ("diagonal", "product"))
    total, error, scale = (array(name, 1, "float64") for name in ("total", "error", "scale"))
    done = array("round", 1, "int64")
    one = tirx.const(1.0, "float64")

    def share(i: Any, j: Any) -> Any:
        """Return the probability of class i against another class j."""
        first, second = tirx.min(i, j), tirx.max(i, j)
        at = tirx.indexdiv(first * (2 * classes - 1 - first), 2) + second - first - 1
        value = pairs.load(at, row=row)
        return tirx.if_then_else(i < j, value, one - value)

    def entry(i: Any, j: Any) -> Any:
        """Return Q[i, j]."""
        other = tirx.const(0.0, "float64") - share(j, i) * share(i, j)
        return tirx.if_then_else(i == j, diagonal.load(i), other)

    def begin(t: Any) -> Any:
        def add(j: Any) -> Any:
            product = share(j, t)
            return tirx.IfThenElse(j != t, diagonal.store(diagonal.load(t) + product * product, t), None)

        zero = diagonal.store(tirx.const(0.0, "float64"), t)
        start = out.store(tirx.const(1.0 / classes, "float64"), t, row=row)
        return sequence([zero, start, serial("j", classes, add)])

    def multiply(t: Any) -> Any:
        def add(j: Any) -> Any:
            return product.store(product.load(t) + entry(t, j) * out.load(j, row=row), t)

        return sequence(
            [
                product.store(tirx.const(0.0, "float64"), t),
                serial("j", classes, add),
                total.store(total.load(0) + out.load(t, row=row) * product.load(t), 0),
            ]
        )

    def differ(t: Any) -> Any:
        away = product.load(t) - total.load(0)
        size = tirx.Select(away < tirx.const(0.0, "float64"), tirx.const(0.0, "float64") - away, away)
        # Comparison with NaN also ends the rounds.
        return error.store(tirx.Select(size > error.load(0), size, error.load(0)), 0)

    def newton(t: Any) -> Any:
        step, diagonal_entry = tirx.Var("step", "float64"), diagonal.load(t)
        more = total.load(0) + step * (step * diagonal_entry + tirx.const(2.0, "float64") * product.load(t))

        def divide(j: Any) -> Any:
            moved = (product.load(j) + step * entry(t, j)) / scale.load(0)
            return sequence(
                [
                    product.store(moved, j),
                    out.store(out.load(j, row=row) / scale.load(0), j, row=row),
                ]
            )

        return sequence(
            [
                tirx.Bind(step, (total.load(0) - product.load(t)) / diagonal_entry),
                scale.store(one + step, 0),
                out.store(out.load(t, row=row) + step, t, row=row),
                total.store(more / scale.load(0) / scale.load(0), 0),
                serial("j", classes, divide),
            ]
        )

    def look() -> list[Any]:
        zeros = [place.store(tirx.const(0.0, "float64"), 0) for place in (total, error)]
        return [*zeros, serial("t", classes, multiply), serial("t", classes, differ)]

    limit = tirx.const(TOLERANCE / classes, "float64")
    going = tirx.And(done.load(0) < tirx.const(rounds, "int64"), error.load(0) >= limit)
    iteration = [serial("t", classes, newton), done.store(done.load(0) + 1, 0), *look()]
    places = (diagonal, product, total, error, scale, done)
    return sequence(
        [
            *(statement for place in places for statement in place.allocation()),
            done.store(tirx.const(0, "int64"), 0),
            serial("t", classes, begin),
            *look(),
            tirx.While(going, sequence(iteration)),
        ]
    )


_BUILDERS: dict[str, tuple[Callable[[RowLoop], Any], int]] = {
    IMPUTATION: (_imputation, 2),
    COUPLING: (_coupling, 1),
}
"""By name of the call: the function that returns its statements, and the number of stages that it reads."""
