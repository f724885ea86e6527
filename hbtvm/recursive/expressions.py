"""Expressions in a cell's function, which record values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hbtvm.errors import ModelError
from hbtvm.recursive.cell import Input, Shape, Value
from hbtvm.recursive.values import Values


class Recorder(Values):
    """Records the values of a cell's function."""

    def __init__(
        self, weights: Mapping[str, np.ndarray], inputs: Mapping[str, Input], sources: Mapping[str, Any]
    ) -> None:
        super().__init__()
        self._weights, self._inputs, self._sources = weights, inputs, sources

    def source(self, op: str, shape: Shape = (), **more: Any) -> Expression:
        """Record a value without operands."""
        return Expression(self, self.put(Value(op, (), shape, **more)))

    def computed(self, op: str, *of: Any, **more: Any) -> Expression:
        """Record an operator of expressions and numbers."""
        return Expression(self, self.apply(op, [self.of(operand).number for operand in of], **more))

    def weight(self, name: str) -> Expression:
        """Return a constant by name."""
        if name not in self._weights:
            raise ModelError(f"there is no weight {name!r}; there are {sorted(self._weights)}")
        return self.source("weight", self._weights[name].shape, name=name)

    def input(self, name: str) -> Expression:
        """Return a node's input as a vector."""
        if name not in self._inputs:
            raise ModelError(f"a node has no input {name!r}; there are {sorted(self._inputs)}")
        input_ = self._inputs[name]
        if input_.kind == "vector":
            return self.source("input", (input_.size,), name=name)
        weight = self._sources[name].weight
        which = list(self._inputs).index(name)
        return self.source("embed", self._weights[weight].shape[1:], name=weight, start=which)

    def of(self, value: Any) -> Expression:
        """Convert an expression or a number to an expression."""
        if isinstance(value, Expression):
            return value
        if isinstance(value, int | float):
            return self.source("constant", constant=float(value))
        raise ModelError(f"{value!r} is not an expression of a cell; weights are reached as w.NAME")


class Expression:
    """A number, vector or matrix, of a node or of each of its children."""

    __array_ufunc__ = None  # makes numpy's operators defer to this class

    def __init__(self, recorder: Recorder, number: int) -> None:
        self.recorder, self.number = recorder, number

    @property
    def shape(self) -> Shape:
        """() for a number, else the shape of a vector or matrix."""
        return self.recorder.values[self.number].shape

    @property
    def per_child(self) -> bool:
        """Whether there is a value for each child."""
        return self.recorder.values[self.number].per_child

    def __add__(self, other: Any) -> Expression:
        # sum() begins with 0.
        return self if isinstance(other, int) and other == 0 else self.recorder.computed("add", self, other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Expression:
        return self.recorder.computed("sub", self, other)

    def __rsub__(self, other: Any) -> Expression:
        return self.recorder.computed("sub", other, self)

    def __mul__(self, other: Any) -> Expression:
        return self.recorder.computed("mul", self, other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Expression:
        return self.recorder.computed("div", self, other)

    def __rtruediv__(self, other: Any) -> Expression:
        return self.recorder.computed("div", other, self)

    def __bool__(self) -> bool:
        raise ModelError(
            "what a cell computes may depend on the structure alone: no if, and, or or of its values"
        )

    def __neg__(self) -> Expression:
        return self.recorder.computed("neg", self)

    def __matmul__(self, other: Any) -> Expression:
        return self.recorder.computed("matmul", self, other)

    def reshape(self, shape: Shape) -> Expression:
        """Return the numbers in another shape, row by row."""
        return self.recorder.computed("reshape", self, shape=tuple(shape))

    def __getitem__(self, which: slice) -> Expression:
        if not isinstance(which, slice) or not self.shape or which.step not in (None, 1):
            raise ModelError(f"{which!r} is not a part of a vector; expected first:last")
        start, stop, _ = which.indices(self.shape[0])
        return self.recorder.computed("slice", self, start=start, stop=stop)


def sigmoid(x: Expression) -> Expression:
    """Return 1 / (1 + e**-x), number by number."""
    return x.recorder.computed("sigmoid", x)


def tanh(x: Expression) -> Expression:
    """Return the hyperbolic tangent, number by number."""
    return x.recorder.computed("tanh", x)


def relu(x: Expression) -> Expression:
    """Return max(x, 0), number by number."""
    return x.recorder.computed("relu", x)


def exp(x: Expression) -> Expression:
    """Return e to the power of x, number by number."""
    return x.recorder.computed("exp", x)


def absolute(x: Expression) -> Expression:
    """Return the absolute value, number by number."""
    return x.recorder.computed("abs", x)


def maximum(a: Expression, b: Any) -> Expression:
    """Return the larger of two, number by number."""
    return a.recorder.computed("max", a, b)


def minimum(a: Expression, b: Any) -> Expression:
    """Return the smaller of two, number by number."""
    return a.recorder.computed("min", a, b)


def total(x: Expression) -> Expression:
    """Return the sum over a node's children; zeros without children."""
    return _over_children("total", x)


def most(x: Expression) -> Expression:
    """Return the maximum over a node's children; zeros without children."""
    return _over_children("most", x)


def _over_children(op: str, x: Expression) -> Expression:
    if not isinstance(x, Expression) or not x.per_child:
        raise ModelError(f"{op} is over children; expected a value for each child")
    return x.recorder.computed(op, x)


def split(x: Expression, parts: int) -> list[Expression]:
    """Split a vector, or the rows of a matrix, into equal parts."""
    if not x.shape or parts < 1 or x.shape[0] % parts:
        raise ModelError(f"shape {x.shape} does not split into {parts} equal parts")
    size = x.shape[0] // parts
    return [x[i * size : (i + 1) * size] for i in range(parts)]


def concat(parts: Sequence[Expression]) -> Expression:
    """Concatenate vectors, or the rows of matrices."""
    parts = list(parts)
    if not parts:
        raise ModelError("concat of nothing; expected at least one part")
    return parts[0].recorder.computed("concat", *parts)


def softmax(x: Expression) -> Expression:
    """Return the softmax of a vector."""
    return x.recorder.computed("softmax", x)


def outer(a: Expression, b: Expression) -> Expression:
    """Return the matrix of all products of two vectors' numbers."""
    return a.recorder.computed("outer", a, b)
