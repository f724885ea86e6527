"""Statements of a thread's walk that computes Shapley values (`hbtvm.strategies.cuda.reasons`).

For points k, with weights m = o * w, s = 1 - t and q[k] = s[k] + t[k] * m of a branch, the steps are::

    LEAVES    open; up = terms * q of the children; value = sum over both leaves of (m - 1) * term * sum(base)
              if again: up /= q of the earlier branch; value -= (m of that - 1) * sum(base * up)
    DOWN      open; stack base; base *= q of the child
    OVER      base from the stack; stack up * q[left] and (m[left] - 1) * sum(base * up); base *= q[right]
    UP        base from the stack; value = the stacked value + (m - 1) * sum(base * up)
              up = the stacked sums + up * q; as LEAVES, if again
    UP_LEAF   as UP; the leaf gives the value and the sums that UP takes from the stack

where to open a split is to take the weights of the quadrature for `base` at a root, and to divide `base` by q
of the player's earlier branch. A row's o are bits of words by level.
"""

from __future__ import annotations

from typing import Any

from tvm import tirx

from hbtvm.compiler.lowering.cuda.shapley.state import WORD, State, Step
from hbtvm.compiler.lowering.rewrites import held
from hbtvm.schedules.reasons.cuda import WEIGHT, S, T, points_of
from hbtvm.schedules.statements import const, sequence, serial
from hbtvm.strategies.reasons import steps


def make_steps(loop: Any) -> Any:
    """Return the replacement of the annotated loop over a thread's values."""
    walk = _Walk(loop)
    return held(walk.sizes.resident, walk.statement())


class _Walk(State):
    """Builds the statements of each step."""

    def statement(self) -> Any:
        """Return the statement of a thread."""
        sizes = self.sizes
        arrays = (
            self.stack, self.halves, self.base, self.inverse, self.up, self.value, self.total, self.points,
            self.taken, self.word, self.weight, self.leaf,
        )  # fmt: skip
        begin = [statement for array in arrays for statement in array.allocation()]
        zero = tirx.const(0.0, "float64")

        def clear(value: Any) -> Any:
            return sequence([self.sums.store(zero, self.sum_at(value, row)) for row in range(sizes.rows)])

        begin.append(serial("value", sizes.outputs * sizes.players, clear))
        words = -(-sizes.levels // WORD) * sizes.rows
        begin += [self.taken.store(tirx.const(0, "uint32"), const(at)) for at in range(words)]
        for at, points in enumerate(points_of(sizes.points, sizes.classes)):
            self.many, self.at_class = points, at
            begin += self._of_class(at)
        return sequence(begin)

    def _of_class(self, at: int) -> list[Any]:
        """Return the statements of the trees of a class."""
        into: list[Any] = []
        for which in (T, S):
            for point in range(self.many):
                number = self.point.load(const(self._point(which, point)))
                into.append(self.points.store(number, const(which * self.sizes.points + point)))
        place = at * (self.sizes.lanes + 1)
        start = self.let("start", self.first.load(const(place)).astype("int64"), into)
        count = self.first.load(const(place + 1)).astype("int64") - start
        into.append(serial("step", count, lambda n: self._take(start + n)))
        return into

    def _point(self, which: int, point: Any) -> Any:
        """Return the offset of a number of a point of the trees' class."""
        return (self.at_class * 3 + which) * self.sizes.points + point

    def _take(self, at: Any) -> Any:
        into: list[Any] = []
        number = self.let("number", at, into)
        into.append(self.word.store(self.step.load(number * steps.WORDS, steps.WORDS), const(0), steps.WORDS))
        # CUDA has vectors of up to 16 bytes.
        lanes = 2 if self.dtype == "float64" else steps.NUMBERS
        for first in range(0, steps.NUMBERS, lanes):
            vector = self.number.load(number * steps.NUMBERS + first, lanes)
            into.append(self.weight.store(vector, const(first), lanes))
        if self.sizes.outputs == 1:
            into.append(self._terms(number, 0))
        code = self.let("code", self.word.load(const(steps.CODE)), into)
        level = tirx.shift_right(code, tirx.const(5, "int32"))
        # TVM would shift the array of halves by a plain load's value; the mask changes nothing.
        where = tirx.bitwise_and(self.word.load(const(steps.WHERE)), tirx.const(2**31 - 1, "int32"))
        step = Step(
            code,
            self.let("level", level, into),
            self.let("earlier", self.word.load(const(steps.EARLIER)), into),
            self.let("where", where.astype("int64"), into),
            self.let("place", self.word.load(const(steps.PLACE)).astype("int64"), into),
            number,
        )
        kind = tirx.bitwise_and(code, tirx.const(steps.KINDS - 1, "int32"))
        kind = self.let("kind", kind, into)
        body = self._up(step, kind)
        for of, statements in (
            (steps.OVER, self._over), (steps.DOWN, self._down), (steps.LEAVES, self._leaves)
        ):  # fmt: skip
            body = tirx.IfThenElse(kind == of, sequence(statements(step)), body)
        return sequence([*into, body])

    def _goes_left(self, step: Step, row: int) -> Any:
        x = self.columns.load(step.where * self.sizes.tile + row * self.sizes.row_step)
        if self.has_thresholds:
            threshold = self.threshold.load(step.number)
        else:
            threshold = self.weight.load(const(steps.THRESHOLD))
        left = x <= threshold
        return tirx.Select(left, tirx.const(1, "uint32"), tirx.const(0, "uint32"))

    def _opened(self, step: Step) -> list[Any]:
        """Return statements that make `base` that of a split."""
        rows = range(self.sizes.rows)

        def root(point: Any) -> list[Any]:
            weight = self.point.load(self._point(WEIGHT, point))
            return [self.base.store(weight, self.at(point, row)) for row in rows]

        begin = tirx.IfThenElse(step.level == 0, sequence(self.each(root)), None)

        def divide(point: Any, row: int) -> Any:
            at = self.at(point, row)
            return self.base.store(self.base.load(at) * self.inverse.load(at), at)

        divided = [*self._inverses(step)]
        divided += [
            statement
            for row in rows
            for statement in self.each(lambda point, row=row: [divide(point, row)])  # type: ignore[misc]
        ]
        return [begin, tirx.IfThenElse(step.has(steps.AGAIN), sequence(divided), None)]

    def _before(self, step: Step, row: int, into: list[Any]) -> Any:
        """Return ``o * w`` of the player's earlier branch."""
        return self.let("before", self.taken_weight(self.bit(step.earlier, row), steps.BEFORE), into)

    def _inverses(self, step: Step) -> list[Any]:
        """Return statements that make `inverse` that of q of the player's earlier branch."""
        into: list[Any] = []
        for row in range(self.sizes.rows):
            before = self._before(step, row, into)

            def invert(point: Any, row: int = row, before: Any = before) -> list[Any]:
                return [self.inverse.store(self.inverse_of(self.q(point, before)), self.at(point, row))]

            into += self.each(invert)
        return into

    def _closed(self, step: Step, output: int) -> list[Any]:
        """Return statements after which `up` is that of a split, and its player's value is in the sums."""
        into: list[Any] = []
        for row in range(self.sizes.rows):
            again: list[Any] = []
            before = self._before(step, row, again)

            def divide(point: Any, row: int = row) -> list[Any]:
                at = self.at(point, row, output)
                inverse = self.inverse.load(self.at(point, row))
                return [self.up.store(self.up.load(at) * inverse, at)]

            again += [*self.each(divide), *self.product(row, output)]
            taken_back = (before - self.constant(1.0)) * self.total.load(const(row))
            again.append(self.value.store(self.value.load(const(row)) - taken_back, const(row)))
            into.append(tirx.IfThenElse(step.has(steps.AGAIN), sequence(again), None))
            at = self.sum_at(step.place + output * self.sizes.players, row)
            value = self.value.load(const(row)).astype("float64")
            into.append(self.sums.store(self.sums.load(at) + value, at))
        return into

    def _terms(self, number: Any, output: int) -> Any:
        """Return the statement that loads the terms of a step's leaves, for an output of the thread."""
        pair = self.term.load((number * self.sizes.width + output) * 2, 2)
        return self.leaf.store(pair, const(0), 2)

    def _leaves(self, step: Step) -> list[Any]:
        into, one = self._opened(step), self.constant(1.0)
        weights = []
        for row in range(self.sizes.rows):
            was = self.let("was", self.was(step, row), into)
            left = self.let("left", tirx.bitwise_and(was, self._goes_left(step, row)), into)
            right = was - left
            weights.append(
                [
                    self.let("weight", self.taken_weight(taken, which), into)
                    for taken, which in ((left, steps.THIS), (right, steps.OTHER))
                ]
            )
        for output in range(self.sizes.outputs):
            if self.sizes.outputs > 1:
                into.append(self._terms(step.number, output))
            terms = [self.let("term", self.leaf.load(const(which)), into) for which in (0, 1)]
            both = self.let("both", terms[0] + terms[1], into)
            for row in range(self.sizes.rows):
                left, right = weights[row]
                factor = self.let("factor", terms[0] * left + terms[1] * right, into)
                into += self.sum_of_base(row)
                # (m - 1) * term of both leaves
                value = (terms[0] * (left - one) + terms[1] * (right - one)) * self.total.load(const(row))
                into.append(self.value.store(value, const(row)))

                def fill(point: Any, row: int = row, output: int = output, factor: Any = factor) -> list[Any]:
                    t, s = self.points.load(point), self.points.load(point + self.sizes.points)
                    return [self.up.store(s * both + t * factor, self.at(point, row, output))]  # noqa: B023

                into += self.each(fill)
            into += self._closed(step, output)
        return into

    def _down(self, step: Step) -> list[Any]:
        into = self._opened(step)
        for row in range(self.sizes.rows):
            was = self.let("was", self.was(step, row), into)
            left = self.let("left", tirx.bitwise_and(was, self._goes_left(step, row)), into)
            taken = self.let("branch", tirx.Select(step.has(steps.RIGHT), was - left, left), into)
            into.append(self.set_bit(step.level, row, taken))
            weight = self.let("weight", self.taken_weight(taken, steps.THIS), into)

            def descend(point: Any, row: int = row, weight: Any = weight) -> list[Any]:
                at = self.at(point, row)
                here: list[Any] = []
                base = self.let("base_k", self.base.load(at), here)
                level = step.level.astype("int64")
                return [
                    *here,
                    self.stack.store(base, self.at(point, row, level)),
                    self.base.store(base * self.q(point, weight), at),
                ]

            into += self.each(descend)
        return into

    def _load_base(self, step: Step, row: int) -> list[Any]:
        level = step.level.astype("int64")

        def load(point: Any) -> list[Any]:
            return [self.base.store(self.stack.load(self.at(point, row, level)), self.at(point, row))]

        return self.each(load)

    def _over(self, step: Step) -> list[Any]:
        into: list[Any] = []
        one = self.constant(1.0)
        for row in range(self.sizes.rows):
            into += self._load_base(step, row)
            left = self.let("left", self.bit(step.level, row), into)
            right = self.let("right", self.was(step, row) - left, into)
            weight = self.let("weight", self.taken_weight(left, steps.THIS), into)
            other = self.let("other", self.taken_weight(right, steps.OTHER), into)
            into.append(self.set_bit(step.level, row, right))
            for output in range(self.sizes.outputs):
                into += self.product(row, output)
                value = (weight - one) * self.total.load(const(row))
                at = self.half(step.where, output, self.sizes.points, row)
                into.append(self.halves.store(value, at))

                def keep(point: Any, row: int = row, output: int = output, weight: Any = weight) -> list[Any]:
                    part = self.up.load(self.at(point, row, output)) * self.q(point, weight)
                    return [self.halves.store(part, self.half(step.where, output, point, row))]

                into += self.each(keep)

            def descend(point: Any, row: int = row, other: Any = other) -> list[Any]:
                at = self.at(point, row)
                return [self.base.store(self.base.load(at) * self.q(point, other), at)]

            into += self.each(descend)
        return into

    def _up(self, step: Step, kind: Any) -> Any:
        into: list[Any] = []
        one = self.constant(1.0)
        weights = []
        for row in range(self.sizes.rows):
            into += self._load_base(step, row)
            this = self.let("branch", self.bit(step.level, row), into)
            weight = self.let("weight", self.taken_weight(this, steps.THIS), into)
            other = self.let("other", self.taken_weight(self.was(step, row) - this, steps.OTHER), into)
            weights.append((weight, other))
        into.append(tirx.IfThenElse(step.has(steps.AGAIN), sequence(self._inverses(step)), None))
        for output in range(self.sizes.outputs):
            for row, (weight, other) in enumerate(weights):
                into += self.product(row, output)
                value = self.let("value_of", (weight - one) * self.total.load(const(row)), into)
                with_half, with_leaf = list[Any](), self.sum_of_base(row)
                half = self.halves.load(self.half(step.where, output, self.sizes.points, row))
                with_half.append(self.value.store(value + half, const(row)))
                if self.sizes.outputs > 1:
                    with_leaf.append(self._terms(step.number, output))
                term = self.let("term", self.leaf.load(const(0)), with_leaf)
                value = value + (other - one) * term * self.total.load(const(row))
                with_leaf.append(self.value.store(value, const(row)))

                def add_half(
                    point: Any, row: int = row, output: int = output, weight: Any = weight
                ) -> list[Any]:
                    at = self.at(point, row, output)
                    part = self.halves.load(self.half(step.where, output, point, row))
                    return [self.up.store(self.up.load(at) * self.q(point, weight) + part, at)]

                def add_leaf(
                    point: Any, row: int = row, output: int = output, weight: Any = weight,
                    other: Any = other, term: Any = term,
                ) -> list[Any]:  # fmt: skip
                    at = self.at(point, row, output)
                    leaf = self.q(point, other) * term
                    return [self.up.store(self.up.load(at) * self.q(point, weight) + leaf, at)]

                with_half += self.each(add_half)
                with_leaf += self.each(add_leaf)
                into.append(tirx.IfThenElse(kind == steps.UP, sequence(with_half), sequence(with_leaf)))
            into += self._closed(step, output)
        return sequence(into)
