"""Array operations that compute outputs, for numpy and for array libraries on GPUs."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from hbtvm.operators.base import Constant, Evaluation, Input, Node, in_order
from hbtvm.operators.pointwise import Elementwise, sigmoid
from hbtvm.operators.shapes import Concat, Reduce, Select

_OPERATORS: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "power": operator.pow,
    "negative": operator.neg,
}
_COMPARISONS: dict[str, Callable[..., Any]] = {
    "greater": operator.gt,
    "greater_equal": operator.ge,
    "less": operator.lt,
}
_CALLED = ("exp", "log1p", "sign", "sigmoid", "maximum", "minimum", "where", "round_float32")


class Arrays:
    """Operations of an array library that has numpy's functions by the same names.

    Its arrays have arithmetic, comparisons, slices, and ``table[index]``.

    Parameters
    ----------
    module
        The library.
    """

    def __init__(self, module: Any) -> None:
        self._module = module

    @staticmethod
    def known(output: Node) -> bool:
        """Return whether all libraries can compute a node: some functions, with scalar constants."""
        return all(
            node.function in (*_OPERATORS, *_COMPARISONS, *_CALLED)
            if isinstance(node, Elementwise)
            else node.width == 1
            if isinstance(node, Constant)
            else node.groups == 1 and node.function in ("max", "sum", "argmax")
            if isinstance(node, Reduce)
            else isinstance(node, Input | Select | Concat)
            for node in in_order(output)
        )

    def values(self, output: Node, raw: Any) -> Any:
        """Return a node's values, float64, shape (n, width), from those of its only `Input`."""
        known: dict[int, Any] = {}
        for node in in_order(output):
            inputs = [known[id(x)] for x in node.inputs]
            known[id(node)] = raw if isinstance(node, Input) else self._value(node, inputs)
        return known[id(output)]

    def _value(self, node: Node, inputs: list[Any]) -> Any:
        match node:
            case Constant():
                return float(node.values[0])
            case Select():
                first = node.attributes().get("first")
                return inputs[0][:, node.indices if first is None else slice(first, first + node.width)]
            case Concat():
                return self.columns([x[:, i] for x in inputs for i in range(x.shape[1])])
            case Reduce():
                return self.reduced(node.function, inputs[0])
            case Elementwise():
                return self._function(node.function, *inputs)
        raise TypeError(f"no operation for {node.kind}")

    def _function(self, name: str, x: Any, *rest: Any) -> Any:
        if name in _OPERATORS:
            return _OPERATORS[name](x, *rest)
        if name in _COMPARISONS:
            return self.cast(_COMPARISONS[name](x, *rest), "float64")
        match name:
            case "sigmoid":
                return sigmoid(x, self._module.exp)
            case "round_float32":
                return self.cast(self.cast(x, "float32"), "float64")
            case "where":
                return self._module.where(x != 0, *rest)
            case "maximum" | "minimum":
                return self.bounded(name, x, *rest)
        return getattr(self._module, name)(x)

    def cast(self, x: Any, dtype: str) -> Any:
        """Return an array in another type; the array itself if it has that type."""
        return x.astype(dtype, copy=False)

    def bounded(self, name: str, x: Any, bound: float) -> Any:
        """Return the ``"maximum"`` or ``"minimum"`` of each value and a number; NaN stays."""
        return getattr(self._module, name)(x, bound)

    def reduced(self, name: str, x: Any) -> Any:
        """Return the ``"max"``, ``"sum"`` or ``"argmax"`` (the first of equals) of each row, shape (n, 1)."""
        return self.cast(getattr(x, name)(axis=1)[:, None], "float64")

    def columns(self, parts: Sequence[Any]) -> Any:
        """Return columns of shape (n,) side by side, in the type of the first."""
        result = self._module.empty((len(parts[0]), len(parts)), parts[0].dtype)
        for at, part in enumerate(parts):
            result[:, at] = part
        return result


class _Host(Arrays):
    """numpy's operations: the nodes' references."""

    def __init__(self) -> None:
        super().__init__(np)
        self._evaluations: WeakKeyDictionary[Node, Evaluation] = WeakKeyDictionary()

    def values(self, output: Node, raw: Any) -> Any:
        evaluation = self._evaluations.get(output)
        if evaluation is None:
            self._evaluations[output] = evaluation = Evaluation([output])
        return evaluation(lambda leaf: raw)[0]

    def cast(self, x: Any, dtype: str) -> Any:
        with np.errstate(over="ignore", invalid="ignore"):
            return x.astype(dtype, copy=False)


HOST = _Host()
