"""Base of the statements of whole values: operands in memory, and the result's place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx

from hbtvm.schedules.statements import Scratch, const, sequence, splat
from hbtvm.strategies.recursive.nests import operands, padded
from hbtvm.strategies.recursive.vectors import Vectors

Body = Callable[[Any], list[Any]]  # from a loop's variable to its statements
Span = tuple[Any, Any] | None  # bounds, as expressions


@dataclass(frozen=True)
class Result:
    """Access to the memory of a result."""

    store: Callable[[Any, Any, int], list[Any]]  # returns statements that store numbers at a place
    load: Callable[[Any, int], Any]  # returns an expression of the stored numbers


class Whole:
    """Makes the statements that compute one value of one node.

    `number`: the value's number.
    `here`: expressions at the node.
    `result`: the result's memory.
    `lanes`, `registers`: numbers of a vector, and vectors of sums that stay in registers.
    `span`: first part to compute and end, if threads share the parts.
    """

    def __init__(
        self, number: int, here: Vectors, result: Result, lanes: int, registers: int, span: Span = None
    ) -> None:
        self.here, self.result, self.lanes, self.registers = here, result, lanes, registers
        self.span = span
        self.values = here.facts.values
        self.number, self.value = number, here.facts.values[number]

    def statements(self) -> list[Any]:
        """Return all statements."""
        for operand in operands(self.values, self.number):
            self.here.find(operand)
        body = self.body()
        return [*self.here.statements, *self._zeros(), *body]

    def body(self) -> list[Any]:
        """Return the statements that compute the value from addressable operands."""
        raise NotImplementedError

    def _zeros(self) -> list[Any]:
        """Zero the padding at a vector's end, unless whole vectors write it.

        Threads that share the value each run this, so it must not write the value's numbers.
        """
        shape = self.value.shape
        if len(shape) > 1 or shape[0] % self.lanes == 0:
            return []
        at, stop, statements = shape[0], padded(shape[0]), []
        while at < stop:
            lanes = min(self.lanes, 1 << (stop - at).bit_length() - 1)
            statements += self.result.store(const(at), splat(0.0, "float32", lanes), lanes)
            at += lanes
        return statements

    def read(self, number: int, at: Any, lanes: int) -> tuple[list[Any], Any]:
        """Return statements, and then an expression of an operand's numbers."""
        moved = self.here.moved(at, lanes)
        value = moved.of(number)
        return moved.statements, value

    def reduced(self, memory: Scratch, combine: Callable[[Any, Any], Any]) -> tuple[list[Any], Any]:
        """Return statements that reduce a vector in memory to a number, and its variable."""
        statements, half = [], self.lanes
        while half > 1:
            half //= 2
            statements.append(memory.store(combine(memory.load(0, half), memory.load(half, half)), 0, half))
        variable = tirx.Var("reduced", "float32")
        return [*statements, tirx.Bind(variable, memory.load(0, 1))], variable


def loop(start: int, stop: int, step: int, body: Body) -> list[Any]:
    """Return a loop over places, or the body of a single iteration."""
    count = (stop - start) // step
    if count < 1:
        return []
    if count == 1:
        return body(const(start))
    variable = tirx.Var("i", "int64")
    at = variable * step + start if (start or step > 1) else variable
    statement = tirx.For(variable, const(0), const(count), tirx.ForKind.SERIAL, sequence(body(at)))
    return [statement]
