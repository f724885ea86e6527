"""The notation of a model's output: ``roots("h") | linear("head") | softmax()``."""

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
    """A layer, with weights by name or as arrays."""

    op: Function
    weight: Any = None
    bias: Any = None

    def bound(self, weights: Mapping[str, Any]) -> Layer:
        """Return the layer with its weights.

        Raises
        ------
        ModelError
            If a weight is missing, or is not an array of numbers.
        """
        if self.op != "linear":
            return Layer(self.op)
        weight, bias = self.weight, self.bias
        if isinstance(weight, str) and weight not in weights:
            # torch's names of a layer's two weights.
            if bias is None and f"{weight}.bias" in weights:
                bias = f"{weight}.bias"
            weight = f"{weight}.weight"
        arrays = [None if array is None else _array(array, weights) for array in (weight, bias)]
        return Layer("linear", arrays[0], arrays[1])


@dataclass(frozen=True)
class Output:
    """A readout and layers in order; ``|`` adds a layer."""

    readout: Readout
    stages: tuple[Stage, ...] = ()

    def __or__(self, other: Any) -> Output:
        if not isinstance(other, Stage):
            raise ModelError(f"after | there is {other!r}; expected linear, relu, tanh, sigmoid or softmax")
        return Output(self.readout, (*self.stages, other))


def roots(state: str) -> Output:
    """Read a state of nodes without parents."""
    return Output(Readout(state, "roots"))


def nodes(state: str) -> Output:
    """Read a state of all nodes."""
    return Output(Readout(state, "nodes"))


def mean(state: str) -> Output:
    """Read the mean of a state over a structure's nodes."""
    return Output(Readout(state, "mean"))


@overload
def total(x: str) -> Output: ...
@overload
def total(x: Expression) -> Expression: ...
def total(x: Any) -> Any:
    """In a cell: sum over a node's children. For a state's name: read its sum over a structure's nodes."""
    return Output(Readout(x, "total")) if isinstance(x, str) else expressions.total(x)


@overload
def most(x: str) -> Output: ...
@overload
def most(x: Expression) -> Expression: ...
def most(x: Any) -> Any:
    """In a cell: maximum over a node's children. For a state's name: read its maximum over the nodes."""
    return Output(Readout(x, "most")) if isinstance(x, str) else expressions.most(x)


def linear(weight: Any, bias: Any = None) -> Stage:
    """A layer W x + b.

    Parameters
    ----------
    weight
        An array, (outputs, inputs), or the name of a weight, or of a layer with the weights ``NAME.weight``
        and perhaps ``NAME.bias``.
    bias
        Name or array, (outputs,); None for none.
    """
    return Stage("linear", weight, bias)


@overload
def relu(x: None = None) -> Stage: ...
@overload
def relu(x: Expression) -> Expression: ...
def relu(x: Any = None) -> Any:
    """In a cell: max(x, 0), number by number. Without argument: the layer."""
    return _either("relu", expressions.relu, x)


@overload
def tanh(x: None = None) -> Stage: ...
@overload
def tanh(x: Expression) -> Expression: ...
def tanh(x: Any = None) -> Any:
    """In a cell: the hyperbolic tangent, number by number. Without argument: the layer."""
    return _either("tanh", expressions.tanh, x)


@overload
def sigmoid(x: None = None) -> Stage: ...
@overload
def sigmoid(x: Expression) -> Expression: ...
def sigmoid(x: Any = None) -> Any:
    """In a cell: 1 / (1 + e**-x), number by number. Without argument: the layer."""
    return _either("sigmoid", expressions.sigmoid, x)


@overload
def softmax(x: None = None) -> Stage: ...
@overload
def softmax(x: Expression) -> Expression: ...
def softmax(x: Any = None) -> Any:
    """In a cell: the softmax of a vector. Without argument: the layer."""
    return _either("softmax", expressions.softmax, x)


def _either(op: Function, function: Callable[[Expression], Expression], x: Any) -> Any:
    return Stage(op) if x is None else function(x)


def _array(weight: Any, weights: Mapping[str, Any]) -> np.ndarray:
    if isinstance(weight, str):
        if weight not in weights:
            raise ModelError(f"a layer's weight {weight!r} is missing; there are {sorted(weights)}")
        weight = weights[weight]
    array = np.asarray(weight.detach().numpy() if hasattr(weight, "detach") else weight)
    if array.dtype.kind not in "fiu":
        raise ModelError(f"a layer's weight is {array.dtype} of shape {array.shape}; expected numbers")
    return np.ascontiguousarray(array, np.float32)
