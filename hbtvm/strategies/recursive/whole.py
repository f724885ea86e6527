"""What all values that are whole have in common: operands in memory, and where the result goes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from hbtvm.schedules.statements import Scratch, every, sequence
from hbtvm.strategies.recursive.nests import operands, padded
from hbtvm.strategies.recursive.vectors import Vectors

Body = Callable[[Any], list[Any]]  # from the variable of a loop to what is in it
Span = tuple[Any, Any] | None  # bounds, as expressions


@dataclass(frozen=True)
class Result:
    """Where a value goes."""

    # Makes the statements that put a vector, or a number, at a place in it
    store: Callable[[Any, Any, int], list[Any]]
    load: Callable[[Any, int], Any]  # makes an expression of what was put there


class Whole:
    """Makes the statements that compute one value of one node.

    `number`: of the value.
    `here`: expressions at the node.
    `result`: where it goes.
    `lanes`, `registers`: numbers of a vector, and vectors of sums that stay in registers.
    `span`: the first of the parts to compute and the one behind the last, where threads share them.
    """

    def __init__(
        self, number: int, here: Vectors, result: Result, lanes: int, registers: int, span: Span = None
    ) -> None:
        self.here, self.result, self.lanes, self.registers = here, result, lanes, registers
        self.span = span
        self.values = here.facts.values
        self.number, self.value = number, here.facts.values[number]

    def statements(self) -> list[Any]:
        """All of them."""
        for one in operands(self.values, self.number):
            self.here.find(one)
        made = self.made()
        return [*self.here.statements, *self._zeros(), *made]

    def made(self) -> list[Any]:
        """Those that compute it."""
        raise NotImplementedError

    def _zeros(self) -> list[Any]:
        """What is behind a vector's end is zero, where it is not written with it."""
        shape = self.value.shape
        if len(shape) > 1 or shape[0] % self.lanes == 0:
            return []
        first = shape[0] // self.lanes * self.lanes
        starts = range(first, padded(shape[0]), self.lanes)
        zero = every(0.0, "float32", self.lanes)
        return [one for at in starts for one in self.result.store(const(at), zero, self.lanes)]

    def read(self, number: int, at: Any, lanes: int) -> tuple[list[Any], Any]:
        """Statements and then an expression of numbers of an operand."""
        moved = self.here.moved(at, lanes)
        found = moved.of(number)
        return moved.statements, found

    def reduced(self, memory: Scratch, combine: Callable[[Any, Any], Any]) -> tuple[list[Any], Any]:
        """Statements that make one number of a vector in memory, and its name."""
        made, half = [], self.lanes
        while half > 1:
            half //= 2
            made.append(memory.store(combine(memory.load(0, half), memory.load(half, half)), 0, half))
        variable = tirx.Var("reduced", "float32")
        return [*made, tirx.Bind(variable, memory.load(0, 1))], variable


def const(value: int) -> Any:
    """A place, or a number of them."""
    return tirx.const(value, "int64")


def loop(start: int, stop: int, step: int, body: Body) -> list[Any]:
    """A loop over places, or what it does for its only one."""
    count = (stop - start) // step
    if count < 1:
        return []
    if count == 1:
        return body(const(start))
    variable = tirx.Var("i", "int64")
    at = variable * step + start if (start or step > 1) else variable
    made = tirx.For(variable, const(0), const(count), tirx.ForKind.SERIAL, sequence(body(at)))
    return [made]
