"""Statements of the walk over splits that computes Shapley values (`hbtvm.strategies.reasons.strategy`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from hbtvm.compiler.lowering.indices import index_at
from hbtvm.runtime.explaining import splits as tables
from hbtvm.schedules.reasons.cpu import SHAPLEY
from hbtvm.schedules.statements import Place, broadcast, const, sequence, serial, vector_type

_MOST_UNROLLED = 8  # steps over points in straight-line code


@dataclass(frozen=True)
class _Sizes:
    levels: int
    width: int
    players: int
    points: int
    values: int
    rows: int  # of a tile
    lanes: int
    by_points: int

    @property
    def steps(self) -> int:
        """Vectors of points; each point by itself if vectors run over rows."""
        return self.points // self.lanes if self.by_points else self.points

    @property
    def vectors(self) -> int:
        """Vectors of a tile's rows."""
        return 1 if self.by_points else self.rows // self.lanes

    @property
    def row_lanes(self) -> int:
        return 1 if self.by_points else self.lanes


def make_walk(loop: Any) -> Any:
    """Return the replacement of the annotated loop over a tile's scores."""
    return _Walk(loop).statement()


class _Walk:
    """Builds the statements; `V`, `K`, `R`: outputs of a leaf, points and rows of a tile."""

    def __init__(self, loop: Any) -> None:
        self.sizes = sizes = _Sizes(*(int(value) for value in loop.annotations[SHAPLEY]))
        inner = loop.body
        store = inner.body
        _, columns, split, number, threshold, first, point, blocks = store.value.args

        first_score = {loop.loop_var: 0, inner.loop_var: 0}

        def place(load: Any) -> Place:
            return Place(load.source, index_at(load.indices[0], first_score))

        self.columns, self.split, self.number = place(columns), place(split), place(number)
        self.threshold, self.first, self.point = place(threshold), place(first), place(point)
        self.scores = Place(store.buffer, index_at(store.indices[0], first_score))
        self.blocks = blocks.astype("int64")
        self.dtype = str(self.number.buffer.dtype)
        row, lines = sizes.row_lanes * sizes.vectors, sizes.points * sizes.width
        levels = sizes.levels
        # Lines of level -1 come first: what is above roots.
        self.base = self._array("base", (levels + 1) * sizes.points * row)
        self.inverse = self._array("inverse", (levels + 1) * sizes.points * row)
        self.up = self._array("up", (levels + 1) * 2 * lines * row)
        self.taken = self._array("taken", (2 * levels + 1) * row)
        self.sums = self._array("sums", sizes.values * sizes.lanes * sizes.vectors)
        self.open = Place(tirx.decl_buffer((levels,), "int32", "open"), const(0))

    def _array(self, name: str, size: int) -> Place:
        return Place(tirx.decl_buffer((size,), self.dtype, name), const(0))

    # Vectors, by row or by point

    def _number(self, value: float) -> Any:
        return broadcast(tirx.const(value, self.dtype), self.sizes.lanes)

    def _row_at(self, line: Any, vector: int) -> Any:
        """Return the offset of a vector's rows in an array of numbers by row."""
        sizes = self.sizes
        return line * (sizes.row_lanes * sizes.vectors) + vector * sizes.row_lanes

    def _row_load(self, place: Place, line: Any, vector: int) -> Any:
        """Return a number of the rows of a vector, for all of its lanes."""
        at, lanes = self._row_at(line, vector), self.sizes.lanes
        return broadcast(place.load(at), lanes) if self.sizes.by_points else place.load(at, lanes)

    def _row_store(self, place: Place, value: Any, line: Any, vector: int) -> Any:
        return place.store(value, self._row_at(line, vector), self.sizes.row_lanes)

    def _at(self, line: Any, step: Any, vector: int) -> Any:
        """Return the offset of a line's numbers for a step over points."""
        sizes = self.sizes
        if sizes.by_points:
            return line * sizes.points + step * sizes.lanes
        return (line * sizes.points + step) * sizes.rows + vector * sizes.lanes

    def _point(self, which: int, step: Any) -> Any:
        """Return t (0), 1 - t (1) or the weights (2) of a step's points."""
        sizes = self.sizes
        if sizes.by_points:
            return self.point.load(which * sizes.points + step * sizes.lanes, sizes.lanes)
        return broadcast(self.point.load(which * sizes.points + step), sizes.lanes)

    def _q(self, step: Any, weight: Any) -> Any:
        return self._point(1, step) + self._point(0, step) * weight

    def _steps(self, body: Callable[[Any], list[Any]]) -> list[Any]:
        steps = self.sizes.steps
        if steps <= _MOST_UNROLLED:
            return [statement for step in range(steps) for statement in body(const(step))]
        return [serial("step", steps, lambda step: sequence(body(step)))]

    def _let(self, name: str, value: Any, statements: list[Any]) -> Any:
        variable = tirx.Var(name, str(value.ty.dtype) if hasattr(value, "ty") else str(value.dtype))
        statements.append(tirx.Bind(variable, value))
        return variable

    # The walk

    def statement(self) -> Any:
        """Return the statement of a tile."""
        sizes = self.sizes
        arrays = (self.base, self.inverse, self.up, self.taken, self.sums, self.open)
        begin: list[Any] = []
        for vector in range(sizes.vectors):
            begin.append(self._row_store(self.taken, self._row_number(1.0), const(0), vector))

            def weights(step: Any, vector: int = vector) -> list[Any]:
                return [self.base.store(self._point(2, step), self._at(const(0), step, vector), sizes.lanes)]

            begin += self._steps(weights)
        zero = tirx.const(0.0, "float64")
        clear = self._over_values(
            lambda value: [
                self._row_store(self.scores, broadcast(zero, sizes.row_lanes), value, vector)
                for vector in range(sizes.vectors)
            ]
        )
        return sequence(
            [
                *(tirx.AllocBuffer(place.buffer) for place in arrays),
                *begin,
                clear,
                serial("block", self.blocks - 1, self._block),
            ]
        )

    def _row_number(self, value: float) -> Any:
        return broadcast(tirx.const(value, self.dtype), self.sizes.row_lanes)

    def _over_values(self, body: Callable[[Any], list[Any]]) -> Any:
        return serial("value", self.sizes.values, lambda value: sequence(body(value)))

    def _block(self, block: Any) -> Any:
        sizes = self.sizes

        def clear(value: Any) -> list[Any]:
            zero = self._number(0.0)
            return [
                self.sums.store(zero, self._sum_at(value, vector), sizes.lanes)
                for vector in range(sizes.vectors)
            ]

        def add(value: Any) -> list[Any]:
            statements = []
            for vector in range(sizes.vectors):
                total = self.sums.load(self._sum_at(value, vector), sizes.lanes)
                if sizes.by_points:
                    total = _total(total, self.dtype, sizes.lanes)
                at = self._row_at(value, vector)
                old = self.scores.load(at, sizes.row_lanes)
                total = total.astype(vector_type("float64", sizes.row_lanes))
                statements.append(self.scores.store(old + total, at, sizes.row_lanes))
            return statements

        start = self.first.load(block).astype("int64")
        count = self.first.load(block + 1).astype("int64") - start
        return sequence(
            [
                self._over_values(clear),
                serial("split", count, lambda n: self._visit(start + n)),
                self._over_values(add),
            ]
        )

    def _word(self, split: Any, which: int) -> Any:
        return self.split.load(split * tables.WORDS + which).astype("int64")

    def _of(self, split: Any, which: int) -> Any:
        """Return a number of a split, in all lanes."""
        width = tables.TERMS + 2 * self.sizes.width
        return broadcast(self.number.load(split * width + which), self.sizes.lanes)

    def _visit(self, n: Any) -> Any:
        statements: list[Any] = []
        split = self._let("at", n, statements)
        level = self._let("level", self._word(split, tables.LEVEL), statements)
        earlier = self._let("earlier", self._word(split, tables.EARLIER), statements)
        flags = self._let("flags", self._word(split, tables.FLAGS), statements)
        column = self._let("column", self._word(split, tables.COLUMN), statements)
        statements.append(self.open.store(split.astype("int32"), level))
        for vector in range(self.sizes.vectors):
            statements += self._opened(split, level, earlier, flags, column, vector)
        closes = self._word(split, tables.CLOSES)
        statements.append(serial("closed", closes, lambda c: self._close(level - c)))
        return sequence(statements)

    def _opened(
        self, split: Any, level: Any, earlier: Any, flags: Any, column: Any, vector: int
    ) -> list[Any]:
        sizes, statements = self.sizes, list[Any]()
        is_right = tirx.indexdiv(flags, const(tables.IS_RIGHT))
        # Branch 0, which every row takes, leads to roots.
        own_branch = tirx.max(level * 2 - 1 + is_right, const(0))
        taken = self._row_load(self.taken, own_branch, vector) * self._of(split, tables.OWN)
        weight = self._let("weight", taken, statements)

        def descend(step: Any) -> list[Any]:
            before = self.base.load(self._at(level, step, vector), sizes.lanes)
            at = self._at(level + 1, step, vector)
            return [self.base.store(before * self._q(step, weight), at, sizes.lanes)]

        statements += self._steps(descend)

        # The row's branches.
        x_lanes = sizes.row_lanes
        x = self.columns.load(self._row_at(column, vector), x_lanes)
        goes = x <= broadcast(self.threshold.load(split), x_lanes)
        was = self.taken.load(self._row_at(earlier, vector), x_lanes)
        was = self._let("was", was, statements)
        zero = self._row_number(0.0)
        left = self._let("left", tirx.Select(goes, was, zero), statements)
        statements.append(self._row_store(self.taken, left, level * 2 + 1, vector))
        statements.append(self._row_store(self.taken, was - left, level * 2 + 2, vector))

        # Divide by the earlier branch's q.
        earlier_weight = tirx.Var("earlier_weight", vector_type(self.dtype, sizes.lanes))

        def divide(step: Any) -> list[Any]:
            at = self._at(level + 1, step, vector)
            inverse = tirx.Var("inverse_q", vector_type(self.dtype, sizes.lanes))
            return [
                tirx.Bind(inverse, self._number(1.0) / self._q(step, earlier_weight)),
                self.inverse.store(inverse, at, sizes.lanes),
                self.base.store(self.base.load(at, sizes.lanes) * inverse, at, sizes.lanes),
            ]

        before = self._row_load(self.taken, earlier, vector) * self._of(split, tables.BEFORE)
        divided = sequence([tirx.Bind(earlier_weight, before), *self._steps(divide)])
        # A single row gains more from straight code than from less work: its branches are unpredictable.
        statements.append(divided if sizes.by_points else tirx.IfThenElse(earlier > 0, divided, None))

        # Leaves' terms.
        for side, flag in enumerate((tables.LEFT_LEAF, tables.RIGHT_LEAF)):
            fills: list[Any] = []
            for output in range(sizes.width):
                term = self._of(split, tables.TERMS + side * sizes.width + output)

                def fill(step: Any, output: int = output, side: int = side, term: Any = term) -> list[Any]:
                    return [self.up.store(term, self._up(level, side, output, step, vector), sizes.lanes)]

                fills += self._steps(fill)
            has = tirx.bitwise_and(flags, const(flag)) > 0
            fill_all = sequence(fills)
            statements.append(fill_all if sizes.by_points else tirx.IfThenElse(has, fill_all, None))
        return statements

    def _up(self, level: Any, side: Any, output: int, step: Any, vector: int) -> Any:
        """Return the offset of the sums of a side of the split at a level; level -1 is above the roots."""
        line = ((level + 1) * 2 + side) * self.sizes.width + output
        return self._at(line, step, vector)

    def _close(self, level: Any) -> Any:
        statements: list[Any] = []
        level = self._let("open_level", level, statements)
        split = self._let("closing", self.open.load(level).astype("int64"), statements)
        earlier = self._let("earlier_branch", self._word(split, tables.EARLIER), statements)
        place = self._let("place", self._word(split, tables.PLACE), statements)
        side = tirx.indexdiv(self._word(split, tables.FLAGS), const(tables.IS_RIGHT))
        side = self._let("side", side, statements)
        again = self._closed(split, level, earlier, place, side, again=True)
        if self.sizes.by_points:
            return sequence([*statements, *again])
        alone = self._closed(split, level, earlier, place, side, again=False)
        statements.append(tirx.IfThenElse(earlier > 0, sequence(again), sequence(alone)))
        return sequence(statements)

    def _closed(self, split: Any, level: Any, earlier: Any, place: Any, side: Any, again: bool) -> list[Any]:
        sizes, statements = self.sizes, list[Any]()
        for vector in range(sizes.vectors):
            weights = [
                self._let(
                    "weight",
                    self._row_load(self.taken, level * 2 + 1 + branch, vector) * self._of(split, which),
                    statements,
                )
                for branch, which in ((0, tables.LEFT), (1, tables.RIGHT))
            ]
            for output in range(sizes.width):
                statements += self._output(split, level, earlier, place, side, again, vector, weights, output)
        return statements

    def _output(
        self, split: Any, level: Any, earlier: Any, place: Any, side: Any, again: bool, vector: int,
        weights: Sequence[Any], output: int,
    ) -> list[Any]:  # fmt: skip
        lanes = self.sizes.lanes
        totals = [
            Place(tirx.decl_buffer((lanes,), self.dtype, f"total{i}", scope="local"), const(0))
            for i in range(2 + again)
        ]
        statements: list[Any] = [tirx.AllocBuffer(total.buffer) for total in totals]
        statements += [total.store(self._number(0.0), const(0), lanes) for total in totals]

        def step(k: Any) -> list[Any]:
            here: list[Any] = []
            base = self._let("base_k", self.base.load(self._at(level + 1, k, vector), lanes), here)
            sums = []
            for branch in (0, 1):
                up = self._let("up_k", self.up.load(self._up(level, branch, output, k, vector), lanes), here)
                old = totals[branch].load(const(0), lanes)
                here.append(totals[branch].store(old + base * up, const(0), lanes))
                sums.append(self._q(k, weights[branch]) * up)
            total = sums[0] + sums[1]
            if again:
                total = total * self.inverse.load(self._at(level + 1, k, vector), lanes)
                total = self._let("sum_k", total, here)
                here.append(totals[2].store(totals[2].load(const(0), lanes) + base * total, const(0), lanes))
            here.append(self.up.store(total, self._up(level - 1, side, output, k, vector), lanes))
            return here

        statements += self._steps(step)
        one, at = self._number(1.0), self._sum_at(place + output * self.sizes.players, vector)
        value = sum(
            ((weights[i] - one) * totals[i].load(const(0), lanes) for i in (0, 1)),
            self.sums.load(at, lanes),
        )
        if again:
            before = self._row_load(self.taken, earlier, vector) * self._of(split, tables.BEFORE)
            value = value - (before - one) * totals[2].load(const(0), lanes)
        statements.append(self.sums.store(value, at, lanes))
        return statements

    def _sum_at(self, value: Any, vector: int) -> Any:
        """Return the offset of a block's sums of a value."""
        sizes = self.sizes
        return value * (sizes.lanes * sizes.vectors) + vector * sizes.lanes


def _total(vector: Any, dtype: str, lanes: int) -> Any:
    """Return the sum of a vector's lanes."""
    if lanes == 1:
        return vector
    return tirx.call_llvm_pure_intrin(dtype, "llvm.vector.reduce.fadd", tirx.const(0.0, dtype), vector)
