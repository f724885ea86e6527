"""Functions of single values: the table `FUNCTIONS`, the node `Elementwise`, its constructor `apply`.

Pipelines' steps, networks, recursive cells, ONNX and target transforms use this table.
`hbtvm.strategies.network.functions` has the tensor expressions by the same names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hbtvm.operators.base import Node, constant
from hbtvm.operators.normal import normal_quantile


def sigmoid(x: Any, exp: Callable[[Any], Any] = np.exp) -> Any:
    """Return ``1 / (1 + exp(-x))``; 0 if the power overflows."""
    with np.errstate(over="ignore"):
        return 1.0 / (1.0 + exp(-x))


@dataclass(frozen=True)
class Function:
    """A function of single values."""

    reference: Callable[..., Any]  # from numpy arrays to an array of floats
    arity: int = 1  # number of operands
    slow: bool = False  # whether it takes as long as ten multiplications
    cuda: str = ""  # CUDA's and OpenCL's function that replaces the tensor expression

    def __call__(self, *values: Any) -> np.ndarray:
        result: np.ndarray = self.reference(*values)
        return result


def _truth(function: Callable[..., Any]) -> Function:
    """Return a comparison as a function: 1 or 0; 0 for NaN."""
    return Function(lambda a, b: np.asarray(function(a, b), np.float64), 2)


FUNCTIONS: Mapping[str, Function] = {
    "negative": Function(np.negative),
    "absolute": Function(np.absolute, cuda="fabs"),
    "sign": Function(np.sign),
    "square": Function(np.square),
    "reciprocal": Function(np.reciprocal),
    "sqrt": Function(np.sqrt, cuda="sqrt"),
    "cbrt": Function(np.cbrt, cuda="cbrt"),
    "exp": Function(np.exp, slow=True, cuda="exp"),
    "exp2": Function(np.exp2, cuda="exp2"),
    "expm1": Function(np.expm1, cuda="expm1"),
    "log": Function(np.log, slow=True, cuda="log"),
    "log1p": Function(np.log1p, cuda="log1p"),
    "log2": Function(np.log2, cuda="log2"),
    "log10": Function(np.log10, cuda="log10"),
    "tanh": Function(np.tanh, slow=True, cuda="tanh"),
    "sinh": Function(np.sinh, cuda="sinh"),
    "cosh": Function(np.cosh, cuda="cosh"),
    "sin": Function(np.sin, cuda="sin"),
    "cos": Function(np.cos, cuda="cos"),
    "tan": Function(np.tan, cuda="tan"),
    "arcsin": Function(np.arcsin, cuda="asin"),
    "arctan": Function(np.arctan, cuda="atan"),
    "arcsinh": Function(np.arcsinh, cuda="asinh"),
    "arctanh": Function(np.arctanh, cuda="atanh"),
    "floor": Function(np.floor, cuda="floor"),
    "ceil": Function(np.ceil, cuda="ceil"),
    "rint": Function(np.rint, cuda="rint"),
    "trunc": Function(np.trunc, cuda="trunc"),
    "sigmoid": Function(sigmoid, slow=True),
    "relu": Function(lambda x: np.maximum(x, 0.0)),
    "isnan": Function(lambda x: np.asarray(np.isnan(x), np.float64)),
    "normal_quantile": Function(normal_quantile),
    "round_float32": Function(lambda x: x.astype(np.float32).astype(np.float64)),
    "add": Function(np.add, 2),
    "subtract": Function(np.subtract, 2),
    "multiply": Function(np.multiply, 2),
    "divide": Function(np.divide, 2),
    "power": Function(np.power, 2, slow=True, cuda="pow"),
    # NaN if either operand is, as in numpy.
    "maximum": Function(np.maximum, 2),
    "minimum": Function(np.minimum, 2),
    "less": _truth(np.less),
    "less_equal": _truth(np.less_equal),
    "greater": _truth(np.greater),
    "greater_equal": _truth(np.greater_equal),
    "equal": _truth(np.equal),
    # The second operand where the first is not 0, else the third.
    "where": Function(lambda c, a, b: np.asarray(np.where(c != 0, a, b), np.float64), 3),
}
"""By name."""


@dataclass(frozen=True, eq=False)
class Elementwise(Node):
    """One of `FUNCTIONS` of each value; operands of width 1 meet every column of the others."""

    function: str
    operands: tuple[Node, ...]  # as many as the function's arity
    kind = "elementwise"
    _width: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # Computed once: in a chain of nodes, each would ask all before it.
        object.__setattr__(self, "_width", max(x.width for x in self.operands))

    @property
    def width(self) -> int:
        return self._width

    @property
    def inputs(self) -> tuple[Node, ...]:
        return self.operands

    def attributes(self) -> dict[str, Any]:
        return {"function": self.function}

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        return FUNCTIONS[self.function](*inputs)

    def on(self, *inputs: Node) -> Elementwise:
        return Elementwise(self.function, inputs)

    def checked(self) -> Elementwise:
        widths = [x.width for x in self.operands]
        if self.function not in FUNCTIONS:
            raise ValueError(f"{self.function!r:.60} is not a known function")
        if len(set(widths) - {1}) > 1 or len(self.operands) != FUNCTIONS[self.function].arity:
            raise ValueError(f"{self.function} of operands of the widths {widths}")
        return self


def apply(function: str, *operands: Node | float | np.ndarray) -> Elementwise:
    """Return one of `FUNCTIONS` of nodes, numbers and arrays with a number for each column.

    Raises `ValueError` if the number of operands or their widths don't fit.
    """
    return Elementwise(function, tuple(x if isinstance(x, Node) else constant(x) for x in operands)).checked()
