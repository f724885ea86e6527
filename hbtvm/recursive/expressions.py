"""Expressions of a cell: what its function computes with, value by value recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hbtvm.errors import ModelError
from hbtvm.recursive.cell import Input, Shape, Value


class Recorder:
    """Keeps the values of a cell in the order of computation, equal ones once."""

    def __init__(
        self, weights: Mapping[str, np.ndarray], inputs: Mapping[str, Input], sources: Mapping[str, Any]
    ) -> None:
        self.values: list[Value] = []
        self._weights, self._inputs, self._sources = weights, inputs, sources
        self._known: dict[Value, int] = {}

    def add(self, op: str, of: Sequence[Expression], shape: Shape, **more: Any) -> Expression:
        """A value, new or known."""
        value = Value(op, tuple(one.number for one in of), tuple(shape), **more)
        if value not in self._known:
            self._known[value] = len(self.values)
            self.values.append(value)
        return Expression(self, self._known[value])

    def weight(self, name: str) -> Expression:
        """A constant by its name."""
        if name not in self._weights:
            raise ModelError(f"there is no weight {name!r}; there are {sorted(self._weights)}")
        return self.add("weight", (), self._weights[name].shape, name=name)

    def input(self, name: str) -> Expression:
        """What comes with the node, as a vector."""
        if name not in self._inputs:
            raise ModelError(f"a node has no input {name!r}; there are {sorted(self._inputs)}")
        own = self._inputs[name]
        if own.kind == "vector":
            return self.add("input", (), (own.size,), name=name)
        weight = self._sources[name].weight
        which = list(self._inputs).index(name)
        return self.add("embed", (), self._weights[weight].shape[1:], name=weight, start=which)

    def of(self, value: Any) -> Expression:
        """An expression, or a number as one."""
        if isinstance(value, Expression):
            return value
        if isinstance(value, int | float):
            return self.add("constant", (), (), constant=float(value))
        raise ModelError(f"{value!r} is no expression of a cell; weights are reached as w.NAME")


class Expression:
    """A number, vector or matrix, of a node or of each of its children."""

    __array_ufunc__ = None  # numpy's operators leave it to ours

    def __init__(self, recorder: Recorder, number: int) -> None:
        self.recorder, self.number = recorder, number

    @property
    def shape(self) -> Shape:
        """() of a number, else of a vector or a matrix."""
        return self.recorder.values[self.number].shape

    @property
    def per_child(self) -> bool:
        """Whether there is one for each child."""
        return self.recorder.values[self.number].per_child

    def binary(self, op: str, other: Any, turned: bool = False) -> Expression:
        """An operator number by number."""
        b = self.recorder.of(other)
        if self.shape and b.shape and self.shape != b.shape:
            raise ModelError(f"{op} of shapes {self.shape} and {b.shape}, which differ")
        of = (b, self) if turned else (self, b)
        return self.recorder.add(op, of, self.shape or b.shape, per_child=self.per_child or b.per_child)

    def unary(self, op: str) -> Expression:
        """A function number by number."""
        return self.recorder.add(op, (self,), self.shape, per_child=self.per_child)

    def __add__(self, other: Any) -> Expression:
        # sum() begins with 0.
        return self if isinstance(other, int) and other == 0 else self.binary("add", other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Expression:
        return self.binary("sub", other)

    def __rsub__(self, other: Any) -> Expression:
        return self.binary("sub", other, turned=True)

    def __mul__(self, other: Any) -> Expression:
        return self.binary("mul", other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Expression:
        return self.binary("div", other)

    def __rtruediv__(self, other: Any) -> Expression:
        return self.binary("div", other, turned=True)

    def __bool__(self) -> bool:
        raise ModelError(
            "what a cell computes may depend on the structure alone: no if, and, or or of its values"
        )

    def __neg__(self) -> Expression:
        return self.unary("neg")

    def __matmul__(self, other: Any) -> Expression:
        b = self.recorder.of(other)
        if len(self.shape) != 2 or len(b.shape) not in (1, 2) or self.shape[1] != b.shape[0]:
            raise ModelError(f"a product of shapes {self.shape} and {b.shape}, which do not fit")
        shape = (self.shape[0], *b.shape[1:])
        return self.recorder.add("matmul", (self, b), shape, per_child=self.per_child or b.per_child)

    def reshape(self, shape: Shape) -> Expression:
        """The same numbers in another shape, row by row."""
        if int(np.prod(shape)) != int(np.prod(self.shape)) or not shape:
            raise ModelError(f"shape {self.shape} has no form of shape {tuple(shape)}")
        return self.recorder.add("reshape", (self,), tuple(shape), per_child=self.per_child)

    def __getitem__(self, which: slice) -> Expression:
        if not isinstance(which, slice) or not self.shape or which.step not in (None, 1):
            raise ModelError(f"{which!r} is no part of a vector; expected first:last")
        start, stop, _ = which.indices(self.shape[0])
        if start >= stop:
            raise ModelError(f"the part {start}:{stop} of a vector of {self.shape[0]} is empty")
        shape = (stop - start, *self.shape[1:])
        return self.recorder.add("slice", (self,), shape, per_child=self.per_child, start=start, stop=stop)


def sigmoid(x: Expression) -> Expression:
    """1 / (1 + e**-x), number by number."""
    return x.unary("sigmoid")


def tanh(x: Expression) -> Expression:
    """The hyperbolic tangent, number by number."""
    return x.unary("tanh")


def relu(x: Expression) -> Expression:
    """x, but at least 0, number by number."""
    return x.unary("relu")


def exp(x: Expression) -> Expression:
    """e to the power of x, number by number."""
    return x.unary("exp")


def absolute(x: Expression) -> Expression:
    """The absolute value, number by number."""
    return x.unary("abs")


def maximum(a: Expression, b: Any) -> Expression:
    """The larger of two, number by number."""
    return a.binary("max", b)


def minimum(a: Expression, b: Any) -> Expression:
    """The smaller of two, number by number."""
    return a.binary("min", b)


def total(x: Expression) -> Expression:
    """The sum over a node's children; zeros where it has none."""
    return _over_children("total", x)


def most(x: Expression) -> Expression:
    """The maximum over a node's children; zeros where it has none."""
    return _over_children("most", x)


def _over_children(op: str, x: Expression) -> Expression:
    if not isinstance(x, Expression) or not x.per_child:
        raise ModelError(f"{op} is over children; expected something that there is one of for each child")
    return x.recorder.add(op, (x,), x.shape)


def split(x: Expression, parts: int) -> list[Expression]:
    """Equal parts of a vector, or of the rows of a matrix."""
    if not x.shape or parts < 1 or x.shape[0] % parts:
        raise ModelError(f"shape {x.shape} does not split into {parts} equal parts")
    size = x.shape[0] // parts
    return [x[i * size : (i + 1) * size] for i in range(parts)]


def concat(parts: Sequence[Expression]) -> Expression:
    """Vectors behind each other, or the rows of matrices."""
    parts = list(parts)
    if not parts or any(not one.shape or one.shape[1:] != parts[0].shape[1:] for one in parts):
        raise ModelError(f"concat of shapes {[one.shape for one in parts]}, which do not fit")
    shape = (sum(one.shape[0] for one in parts), *parts[0].shape[1:])
    return parts[0].recorder.add("concat", parts, shape, per_child=any(one.per_child for one in parts))


def softmax(x: Expression) -> Expression:
    """Powers of e, divided by their sum, of a vector."""
    if len(x.shape) != 1:
        raise ModelError(f"softmax of shape {x.shape}; expected a vector")
    return x.unary("softmax")


def outer(a: Expression, b: Expression) -> Expression:
    """The matrix of all products of two vectors' numbers."""
    if len(a.shape) != 1 or len(b.shape) != 1:
        raise ModelError(f"outer of shapes {a.shape} and {b.shape}; expected vectors")
    shape = (*a.shape, *b.shape)
    return a.recorder.add("outer", (a, b), shape, per_child=a.per_child or b.per_child)
