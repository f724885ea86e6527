"""Functions of single values: `Elementwise`, and short functions that make it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hbtvm.operators.base import Node, constant
from hbtvm.operators.normal import normal_quantile


def _sigmoid(x: np.ndarray) -> np.ndarray:
    # Of the absolute value, e to a power never overflows.
    power = np.exp(-np.abs(x))
    result: np.ndarray = np.where(x >= 0, 1.0, power) / (1.0 + power)
    return result


def _float(function: Callable[..., Any]) -> Callable[..., np.ndarray]:
    return lambda *args: np.asarray(function(*args), np.float64)


FUNCTIONS: Mapping[str, Callable[..., np.ndarray]] = {
    # One number.
    **{
        name: getattr(np, name)
        for name in (
            *(
                "negative",
                "exp",
                "exp2",
                "expm1",
                "log",
                "log1p",
                "log2",
                "log10",
                "sqrt",
                "cbrt",
                "square",
                "absolute",
            ),
            *("reciprocal", "tanh", "sinh", "cosh", "sin", "cos", "tan", "arctan", "arcsinh"),
            *("floor", "ceil", "rint", "trunc", "sign"),
        )
    },
    "sigmoid": _sigmoid,
    "relu": lambda x: np.maximum(x, 0.0),
    "isnan": _float(np.isnan),
    "normal_quantile": normal_quantile,
    "round_float32": lambda x: x.astype(np.float32).astype(np.float64),
    # Two numbers.
    **{name: getattr(np, name) for name in ("add", "subtract", "multiply", "divide", "power")},
    # Of NaN and a number, NaN, as numpy does.
    "maximum": np.maximum,
    "minimum": np.minimum,
    # 1 or 0; of NaN, 0.
    **{
        name: _float(getattr(np, name))
        for name in ("less", "less_equal", "greater", "greater_equal", "equal")
    },
    # Three: the second where the first is not 0, else the third.
    "where": _float(lambda c, a, b: np.where(c != 0, a, b)),
}
"""From numpy arrays to float64; by name."""

ARITY: Mapping[str, int] = {
    name: 3 if name == "where" else 2 if name in (
        "add", "subtract", "multiply", "divide", "power", "maximum", "minimum",
        "less", "less_equal", "greater", "greater_equal", "equal",
    ) else 1
    for name in FUNCTIONS
}  # fmt: skip
"""Numbers that each of `FUNCTIONS` takes."""


@dataclass(frozen=True, eq=False)
class Elementwise(Node):
    """One of `FUNCTIONS` of each value; operands of width 1 meet every column of the others.

    Attributes
    ----------
    function
        Its name.
    operands
        As many nodes as it takes numbers.
    """

    function: str
    operands: tuple[Node, ...]
    kind = "elementwise"
    _width: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # Computed once: along a chain of nodes, each would ask all before it.
        object.__setattr__(self, "_width", max(one.width for one in self.operands))

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
        widths = {one.width for one in self.operands} - {1}
        if len(widths) > 1 or len(self.operands) != ARITY[self.function]:
            raise ValueError(
                f"{self.function} of operands of the widths {[one.width for one in self.operands]}"
            )
        return self


def apply(function: str, *operands: Node | float | np.ndarray) -> Elementwise:
    """One of `FUNCTIONS` of nodes, numbers and arrays of one number for each column.

    Raises
    ------
    ValueError
        If the widths don't fit, or the number of operands.
    """
    return Elementwise(
        function, tuple(one if isinstance(one, Node) else constant(one) for one in operands)
    ).checked()
