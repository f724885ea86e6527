"""Expressions of a node's values on GPUs, a number at a time, with CUDA's functions."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import ir, tirx

from hbtvm.recursive.cell import Shape, Value
from hbtvm.schedules.statements import scratch
from hbtvm.strategies.network import functions
from hbtvm.strategies.recursive.functions import Functions
from hbtvm.strategies.recursive.nests import flat, is_whole, padded, row_starts
from hbtvm.strategies.recursive.vectors import Vectors


class DeviceFunctions(Functions):
    """As `Functions`; CUDA's functions are correct to the last bit or two."""

    def shared(self, value: Any, name: str = "v") -> Any:
        """A name for a value that is used more than once.

        Numbers of float32 go to an array of one, which becomes a register: simplifying a function, TVM puts
        what variables stand for in their places, and values of values would grow without bounds.
        """
        if str(value.ty.dtype) != "float32":
            return super().shared(value, name)
        if isinstance(value, ir.TensorLoad) and str(value.source.name) == _REGISTER:
            return value
        memory = scratch(_REGISTER, 1, "float32")
        self.statements += [*memory.made(), memory.store(value, tirx.const(0, "int64"))]
        return memory.load(tirx.const(0, "int64"))

    def tanh(self, x: Any) -> Any:
        return _function("tanhf", x)

    def exp(self, x: Any) -> Any:
        return _function("expf", x)

    def sigmoid(self, x: Any) -> Any:
        return functions.sigmoid(x, self.exp, self.number)


class DeviceVectors(Vectors):
    """Expressions at one place, each made once; of values that are placed otherwise, too."""

    _functions = DeviceFunctions

    def moved(self, at: Any, lanes: int = 1) -> DeviceVectors:
        made = super().moved(at, lanes)
        assert isinstance(made, DeviceVectors)
        return made

    def at(self, number: int, at: Any) -> Any:
        """The number of a value at another place."""
        moved = self.moved(at)
        found = moved.of(number)
        self.statements += moved.statements
        return found

    def _made(self, number: int, child: Any) -> Any:
        value = self.facts.values[number]
        makers = {"slice": self._cut, "concat": self._concat, "reshape": self._reshape, "outer": self._outer}
        if child is not None or value.op not in makers or self._is_alike(number):
            return super()._made(number, child)
        return makers[value.op](value)

    def _is_alike(self, number: int) -> bool:
        """Whether a value's numbers are read as its operand's are, with another first one at most."""
        values = self.facts.values
        if values[number].op == "slice":
            return values[values[number].of[0]].op in ("child", "children", "input")
        return values[number].op == "reshape" and not is_whole(values, number)

    def _cut(self, value: Value) -> Any:
        (source,) = value.of
        shape = self.facts.values[source].shape
        start = _const(value.start * row_starts(shape))
        return self.at(source, tirx.min(self.place.at + start, _const(flat(shape) - 1)))

    def _concat(self, value: Value) -> Any:
        *others, last = value.of
        shapes = [self.facts.values[one].shape for one in value.of]
        counts = [flat(shape) if len(shape) > 1 else shape[0] for shape in shapes]
        starts = [sum(counts[:i]) for i in range(len(counts))]

        def part(i: int, number: int) -> Any:
            own = self.place.at - _const(starts[i])
            return self.at(number, tirx.max(tirx.min(own, _const(counts[i] - 1)), _const(0)))

        made = part(len(others), last)
        for i in reversed(range(len(others))):
            made = tirx.Select(self.place.at < _const(starts[i + 1]), part(i, others[i]), made)
        return made

    def _reshape(self, value: Value) -> Any:
        (source,) = value.of
        return self.at(source, _from(self.facts.values[source].shape, _to(value.shape, self.place.at)))

    def _outer(self, value: Value) -> Any:
        left, right = value.of
        wide = _const(padded(value.shape[1]))
        row, column = tirx.truncdiv(self.place.at, wide), tirx.truncmod(self.place.at, wide)
        return self.at(left, row) * self.at(right, column)


def _to(shape: Shape, place: Any) -> Any:
    """Which of all numbers of a value is at a place; the nearest one, where there is none."""
    if len(shape) < 2:
        return tirx.min(place, _const(int(np.prod(shape)) - 1))
    wide, columns = _const(padded(shape[1])), _const(shape[1])
    column = tirx.min(tirx.truncmod(place, wide), _const(shape[1] - 1))
    return tirx.truncdiv(place, wide) * columns + column


def _from(shape: Shape, which: Any) -> Any:
    """The place of one of all numbers of a value."""
    if len(shape) < 2:
        return which
    columns = _const(shape[1])
    return tirx.truncdiv(which, columns) * _const(padded(shape[1])) + tirx.truncmod(which, columns)


def _const(value: int) -> Any:
    return tirx.const(value, "int64")


_REGISTER = "register"  # name of an array of one number


def _function(name: str, x: Any) -> Any:
    return tirx.call_pure_extern("float32", name, x)
