"""Arrays of a thread that computes Shapley values, and short ways to use them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import sym, tirx

from hbtvm.compiler.lowering.indices import index_at
from hbtvm.schedules.reasons.cuda import SHAPLEY_STEPS
from hbtvm.schedules.statements import Place, Scratch, const, registers, sequence, serial
from hbtvm.strategies.reasons import steps

_MOST_UNROLLED = 32  # points in straight-line code
WORD = 32  # bits of a word of o


@dataclass(frozen=True)
class Sizes:
    levels: int
    halves: int
    width: int
    outputs: int  # of the width, those of the thread
    players: int
    points: int
    classes: int  # of trees, by their number of points
    lanes: int  # threads that share a group's trees
    rows: int  # of the thread
    row_step: int  # distance of the thread's rows in the tile
    tile: int  # rows of the tile
    resident: int


@dataclass(frozen=True)
class Step:
    """What a step's tables hold."""

    code: Any
    level: Any
    earlier: Any
    where: Any  # its column, or the place of its half
    place: Any
    number: Any  # of the step, in the tables

    def has(self, flag: int) -> Any:
        """Return whether a flag of its code is set."""
        return tirx.bitwise_and(self.code, tirx.const(flag, "int32")) != 0


class State:
    """A thread's arrays; their innermost axis is the thread's rows.

    `loop`: the annotated loop over a thread's values (`hbtvm.schedules.reasons.cuda.SHAPLEY_STEPS`).
    """

    def __init__(self, loop: Any) -> None:
        self.sizes = sizes = Sizes(*(int(value) for value in loop.annotations[SHAPLEY_STEPS]))
        inner = loop.body
        store = inner.body

        def index(load: Any, value: int = 0, row: int = 0) -> Any:
            return index_at(load.indices[0], {loop.loop_var: value, inner.loop_var: row})

        places = [Place(load.source, index(load)) for load in store.value.args[1:]]
        self.columns, self.step, self.number, self.term, self.threshold, self.point, self.first = places
        self.has_thresholds = not self.threshold.buffer.same_as(self.number.buffer)
        self.many = sizes.points  # of the trees whose steps are written
        start, simplify = index(store), sym.Analyzer().simplify
        self.sums = Place(store.buffer, start)
        self.value_step = simplify(index(store, 1) - start)
        self.row_step = simplify(index(store, 0, 1) - start)
        self.dtype = str(self.number.buffer.dtype)
        k, rows, levels, outputs = sizes.points, sizes.rows, sizes.levels, sizes.outputs
        self.stack = self._array("stack", levels * k * rows)
        self.halves = self._array("halves", sizes.halves * outputs * (k + 1) * rows)
        self.base, self.inverse = self._array("base", k * rows), self._array("inverse", k * rows)
        self.up = self._array("up", outputs * k * rows)
        self.value, self.total = self._array("value", rows), self._array("total", rows)
        self.points = self._array("points", 2 * k)
        self.taken = registers("taken", -(-levels // WORD) * rows, "uint32")
        self.word = registers("word", steps.WORDS, "int32")
        self.weight = self._array("weight", steps.NUMBERS)
        self.leaf = self._array("leaf", 2)

    def _array(self, name: str, count: int) -> Scratch:
        return registers(name, count, self.dtype)

    # Short ways

    def constant(self, value: float) -> Any:
        return tirx.const(value, self.dtype)

    def let(self, name: str, value: Any, into: list[Any]) -> Any:
        variable = tirx.Var(name, str(value.ty.dtype) if hasattr(value, "ty") else str(value.dtype))
        into.append(tirx.Bind(variable, value))
        return variable

    def each(self, body: Callable[[Any], list[Any]]) -> list[Any]:
        """Return statements for each point."""
        if self.many <= _MOST_UNROLLED:
            return [statement for point in range(self.many) for statement in body(const(point))]
        return [serial("at", self.many, lambda point: sequence(body(point)))]

    def q(self, point: Any, weight: Any) -> Any:
        t, s = self.points.load(point), self.points.load(point + self.sizes.points)
        return s + t * weight

    def at(self, point: Any, row: int, line: Any = 0) -> Any:
        """Return the offset of a point's number in a line of numbers for all points."""
        return (line * self.sizes.points + point) * self.sizes.rows + row

    def half(self, at: Any, output: int, point: Any, row: int) -> Any:
        """Return the offset of a number of half `at`; the value comes after the last point."""
        sizes = self.sizes
        return ((at * sizes.outputs + output) * (sizes.points + 1) + point) * sizes.rows + row

    def inverse_of(self, number: Any) -> Any:
        """Return 1 / x; in float32 with an error of a unit or two in the last place, without branches."""
        one = self.constant(1.0)
        if self.dtype == "float32":
            return tirx.call_pure_extern("float32", "__fdividef", one, number)
        return one / number

    def sum_at(self, value: Any, row: int) -> Any:
        return value * self.value_step + row * self.row_step

    def product(self, row: int, output: int) -> list[Any]:
        """Return statements that put the sum of ``base * up`` over points into `total`."""

        def add(point: Any) -> list[Any]:
            up = self.up.load(self.at(point, row, output))
            here = self.base.load(self.at(point, row)) * up
            return [self.total.store(self.total.load(const(row)) + here, const(row))]

        return [self.total.store(self.constant(0.0), const(row)), *self.each(add)]

    def sum_of_base(self, row: int) -> list[Any]:
        def add(point: Any) -> list[Any]:
            here = self.base.load(self.at(point, row))
            return [self.total.store(self.total.load(const(row)) + here, const(row))]

        return [self.total.store(self.constant(0.0), const(row)), *self.each(add)]

    # A row's o

    def _word_of(self, level: Any, row: int) -> tuple[Any, Any]:
        """Return the offset of the word of a level's bit, and the bit's number."""
        if self.sizes.levels <= WORD:
            return const(row), level.astype("uint32")
        word = tirx.shift_right(level, tirx.const(5, "int32")).astype("int64")
        bit = tirx.bitwise_and(level, tirx.const(WORD - 1, "int32"))
        return word * self.sizes.rows + row, bit.astype("uint32")

    def bit(self, level: Any, row: int) -> Any:
        at, bit = self._word_of(level, row)
        return tirx.bitwise_and(tirx.shift_right(self.taken.load(at), bit), tirx.const(1, "uint32"))

    def set_bit(self, level: Any, row: int, value: Any) -> Any:
        at, bit = self._word_of(level, row)
        one = tirx.const(1, "uint32")
        others = tirx.bitwise_and(self.taken.load(at), tirx.bitwise_not(tirx.shift_left(one, bit)))
        return self.taken.store(tirx.bitwise_or(others, tirx.shift_left(value, bit)), at)

    def was(self, step: Step, row: int) -> Any:
        """Return o of the player's earlier branch; 1 if there is none."""
        one = tirx.const(1, "uint32")
        return tirx.Select(step.has(steps.AGAIN), self.bit(step.earlier, row), one)

    def taken_weight(self, taken: Any, which: int) -> Any:
        """Return ``o * w``."""
        weight = self.weight.load(const(which))
        return tirx.Select(taken != tirx.const(0, "uint32"), weight, self.constant(0.0))
