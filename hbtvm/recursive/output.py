"""What a model gives, as users write it: ``roots("h") | linear("head") | softmax()``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, overload

import numpy as np

from hbtvm.errors import ModelError
from hbtvm.recursive import expressions
from hbtvm.recursive.cell import Layer, Readout
from hbtvm.recursive.expressions import Expression

Function = Literal["linear", "relu", "tanh", "sigmoid", "softmax"]


@dataclass(frozen=True)
class Stage:
    """A layer, whose weights are given by name or as arrays."""

    op: Function
    weight: Any = None
    bias: Any = None

    def bound(self, weights: Mapping[str, Any]) -> Layer:
        """The layer, with weights.

        Raises
        ------
        ModelError
            If a weight is missing, or is no array of numbers.
        """
        if self.op != "linear":
            return Layer(self.op)
        weight, bias = self.weight, self.bias
        if isinstance(weight, str) and weight not in weights:
            # As torch names the two weights of a layer.
            if bias is None and f"{weight}.bias" in weights:
                bias = f"{weight}.bias"
            weight = f"{weight}.weight"
        own = [None if one is None else _array(one, weights) for one in (weight, bias)]
        return Layer("linear", own[0], own[1])


@dataclass(frozen=True)
class Output:
    """What is read of states, and layers behind, in order; ``|`` adds a layer."""

    readout: Readout
    stages: tuple[Stage, ...] = ()

    def __or__(self, other: Any) -> Output:
        if not isinstance(other, Stage):
            raise ModelError(f"behind | stands {other!r}; expected linear, relu, tanh, sigmoid or softmax")
        return Output(self.readout, (*self.stages, other))


def roots(state: str) -> Output:
    """A state of nodes that are nobody's child."""
    return Output(Readout(state, "roots"))


def nodes(state: str) -> Output:
    """A state of all nodes."""
    return Output(Readout(state, "nodes"))


def mean(state: str) -> Output:
    """The mean of a state over a structure's nodes."""
    return Output(Readout(state, "mean"))


@overload
def total(x: str) -> Output: ...
@overload
def total(x: Expression) -> Expression: ...
def total(x: Any) -> Any:
    """In a cell: the sum over a node's children. Of a state's name: its sum over a structure's nodes."""
    return Output(Readout(x, "total")) if isinstance(x, str) else expressions.total(x)


@overload
def most(x: str) -> Output: ...
@overload
def most(x: Expression) -> Expression: ...
def most(x: Any) -> Any:
    """In a cell: the maximum over a node's children. Of a state's name: that over a structure's nodes."""
    return Output(Readout(x, "most")) if isinstance(x, str) else expressions.most(x)


def linear(weight: Any, bias: Any = None) -> Stage:
    """A layer W x + b.

    Parameters
    ----------
    weight
        Name of the weight, (outputs, inputs), or an array; of a name without such a weight, that of a layer
        whose weights are ``NAME.weight`` and, if there is one, ``NAME.bias``.
    bias
        Name or array, (outputs,); None for none.
    """
    return Stage("linear", weight, bias)


@overload
def relu(x: None = None) -> Stage: ...
@overload
def relu(x: Expression) -> Expression: ...
def relu(x: Any = None) -> Any:
    """In a cell: max(x, 0), number by number. Without argument: a layer of it."""
    return _either("relu", expressions.relu, x)


@overload
def tanh(x: None = None) -> Stage: ...
@overload
def tanh(x: Expression) -> Expression: ...
def tanh(x: Any = None) -> Any:
    """In a cell: the hyperbolic tangent, number by number. Without argument: a layer of it."""
    return _either("tanh", expressions.tanh, x)


@overload
def sigmoid(x: None = None) -> Stage: ...
@overload
def sigmoid(x: Expression) -> Expression: ...
def sigmoid(x: Any = None) -> Any:
    """In a cell: 1 / (1 + e**-x), number by number. Without argument: a layer of it."""
    return _either("sigmoid", expressions.sigmoid, x)


@overload
def softmax(x: None = None) -> Stage: ...
@overload
def softmax(x: Expression) -> Expression: ...
def softmax(x: Any = None) -> Any:
    """In a cell: powers of e of a vector, divided by their sum. Without argument: a layer of it."""
    return _either("softmax", expressions.softmax, x)


def _either(op: Function, function: Callable[[Expression], Expression], x: Any) -> Any:
    return Stage(op) if x is None else function(x)


def _array(one: Any, weights: Mapping[str, Any]) -> np.ndarray:
    if isinstance(one, str):
        if one not in weights:
            raise ModelError(f"a layer's weight {one!r} is missing; there are {sorted(weights)}")
        one = weights[one]
    array = np.asarray(one.detach().numpy() if hasattr(one, "detach") else one)
    if array.dtype.kind not in "fiu":
        raise ModelError(f"a layer's weight is {array.dtype} of shape {array.shape}; expected numbers")
    return np.ascontiguousarray(array, np.float32)
