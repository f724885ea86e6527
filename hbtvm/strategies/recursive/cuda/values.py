"""Scalar expressions of a node's values on GPUs, with CUDA's functions."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import ir, tirx

from hbtvm.recursive.cell import Shape, Value
from hbtvm.schedules.statements import Scratch, const, registers
from hbtvm.strategies.network import functions
from hbtvm.strategies.recursive.functions import Functions
from hbtvm.strategies.recursive.nests import flat, is_whole, padded, row_starts
from hbtvm.strategies.recursive.vectors import Vectors


class DeviceFunctions(Functions):
    """`Functions` by CUDA, correct to the last bit or two."""

    def shared(self, value: Any, name: str = "v") -> Any:
        """Bind a value that is used more than once.

        Float32 numbers go to an array of one number, which becomes a register: TVM's simplification would
        substitute variables, and nested values would grow without bounds.
        """
        if str(value.ty.dtype) != "float32":
            return super().shared(value, name)
        if isinstance(value, ir.TensorLoad) and str(value.source.name) == _REGISTER:
            return value
        memory = registers(_REGISTER, 1, "float32")
        self.statements += [*memory.allocation(), memory.store(value, tirx.const(0, "int64"))]
        return memory.load(tirx.const(0, "int64"))

    def tanh(self, x: Any) -> Any:
        return _function("tanhf", x)

    def exp(self, x: Any) -> Any:
        return _function("expf", x)

    def sigmoid(self, x: Any) -> Any:
        return functions.sigmoid(x, self.exp, self.number)


class DeviceVectors(Vectors):
    """Expressions at one place, cached; rearranged values included."""

    _functions = DeviceFunctions

    def _array(self, name: str) -> Scratch:
        return registers(name, self.lanes, "float32")

    def moved(self, at: Any, lanes: int = 1) -> DeviceVectors:
        vectors = super().moved(at, lanes)
        assert isinstance(vectors, DeviceVectors)
        return vectors

    def at(self, number: int, at: Any) -> Any:
        """Return a value's number at another place."""
        moved = self.moved(at)
        value = moved.of(number)
        self.statements += moved.statements
        return value

    def _computed(self, number: int, child: Any) -> Any:
        value = self.facts.values[number]
        makers = {"slice": self._cut, "concat": self._concat, "reshape": self._reshape, "outer": self._outer}
        if child is not None or value.op not in makers or self._is_alike(number):
            return super()._computed(number, child)
        return makers[value.op](value)

    def _is_alike(self, number: int) -> bool:
        """Whether a value is a contiguous part of its operand."""
        values = self.facts.values
        if values[number].op == "slice":
            return values[values[number].of[0]].op in ("child", "children", "input")
        return values[number].op == "reshape" and not is_whole(values, number)

    def _cut(self, value: Value) -> Any:
        (source,) = value.of
        shape = self.facts.values[source].shape
        start = const(value.start * row_starts(shape))
        return self.at(source, tirx.min(self.place.at + start, const(flat(shape) - 1)))

    def _concat(self, value: Value) -> Any:
        *others, last = value.of
        shapes = [self.facts.values[operand].shape for operand in value.of]
        counts = [flat(shape) if len(shape) > 1 else shape[0] for shape in shapes]
        starts = [sum(counts[:i]) for i in range(len(counts))]

        def part(i: int, number: int) -> Any:
            place = self.place.at - const(starts[i])
            return self.at(number, tirx.max(tirx.min(place, const(counts[i] - 1)), const(0)))

        result = part(len(others), last)
        for i in reversed(range(len(others))):
            result = tirx.Select(self.place.at < const(starts[i + 1]), part(i, others[i]), result)
        return result

    def _reshape(self, value: Value) -> Any:
        (source,) = value.of
        return self.at(source, _from(self.facts.values[source].shape, _to(value.shape, self.place.at)))

    def _outer(self, value: Value) -> Any:
        left, right = value.of
        wide = const(padded(value.shape[1]))
        row, column = tirx.truncdiv(self.place.at, wide), tirx.truncmod(self.place.at, wide)
        return self.at(left, row) * self.at(right, column)


def _to(shape: Shape, place: Any) -> Any:
    """Return the index of the number at a place; at padding, of the nearest number."""
    if len(shape) < 2:
        return tirx.min(place, const(int(np.prod(shape)) - 1))
    wide, columns = const(padded(shape[1])), const(shape[1])
    column = tirx.min(tirx.truncmod(place, wide), const(shape[1] - 1))
    return tirx.truncdiv(place, wide) * columns + column


def _from(shape: Shape, which: Any) -> Any:
    """Return the place of a value's `which`-th number."""
    if len(shape) < 2:
        return which
    columns = const(shape[1])
    return tirx.truncdiv(which, columns) * const(padded(shape[1])) + tirx.truncmod(which, columns)


_REGISTER = "register"  # name of an array of one number


def _function(name: str, x: Any) -> Any:
    return tirx.call_pure_extern("float32", name, x)
