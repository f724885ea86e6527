"""Arithmetic in float32: which nodes of a network give the same numbers when computed so, and how.

A network computes in float64. Where a library computes in float32, what it does is rounded after each
operation (``round_float32``): of float32 operands, the float64 result of +, -, *, / and the square root
rounds to what float32 gives directly (float64 has more than twice as many digits; Figueroa, "When is double
rounding innocuous?", 1995). Such nodes are computed in float32, twice as many values at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from tvm import tirx

from hbtvm.operators.base import Node
from hbtvm.strategies.intrinsics.exact import exact

_ROUNDED = ("add", "subtract", "multiply", "divide", "sqrt")  # functions whose result is to be rounded

_EXACT = (
    *("negative", "absolute", "relu", "isnan", "maximum", "minimum", "where"),
    *("less", "less_equal", "greater", "greater_equal", "equal"),
)
"""Functions of float32 numbers that need no rounding."""


def singles(nodes: Sequence[Node], approximate: frozenset[int] = frozenset()) -> frozenset[int]:
    """Numbers of the nodes of a network over float32 rows that are computed in float32, exactly.

    `nodes`: each behind its inputs.
    `approximate`: ids of those that are computed in float32 all the same.
    """
    at = {id(node): number for number, node in enumerate(nodes)}
    readers: list[list[Node]] = [[] for _ in nodes]
    for node in nodes:
        for one in node.inputs:
            readers[at[id(one)]].append(node)
    found: set[int] = set()
    for number, node in enumerate(nodes):
        inputs = [at[id(one)] for one in node.inputs]
        name = getattr(node, "function", None) if node.kind == "elementwise" else None
        narrow = all(one in found for one in inputs)
        if node.kind == "input" or id(node) in approximate:
            good = True
        elif node.kind == "constant":
            values = node.tables()["values"]
            with np.errstate(over="ignore"):
                good = bool(np.array_equal(values.astype(np.float32), values, equal_nan=True))
        elif node.kind in ("select", "repeat", "concat", "one_hot", "bucketize"):
            good = narrow
        elif name in _ROUNDED:
            own = readers[number]
            good = narrow and bool(own) and all(_rounds(one) for one in own)
        elif name == "round_float32":
            # It is the type itself; what it reads may be of either.
            good = True
        else:
            good = narrow and name in _EXACT
        if good:
            found.add(number)
    return frozenset(found)


def _rounds(node: Node) -> bool:
    return node.kind == "elementwise" and getattr(node, "function", None) == "round_float32"


_ZERO = tirx.const(0, "float32")


def _truth(condition: Any) -> Any:
    return tirx.Select(condition, tirx.const(1, "float32"), tirx.const(0, "float32"))


def _known(x: Any) -> Any:
    return x >= tirx.const(-np.inf, "float32")


_EXP = [2 / math.factorial(n) for n in range(7, -1, -1)]
"""The series of twice e to a power, to which 2**-125 may still be a factor."""

_ROUNDS = 1.5 * 2.0**23
"""Added to a number of moderate size, it leaves the nearest whole number in the lowest bits."""

_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440054690583e-4
"""The first has so few digits that its products with whole numbers are exact."""


def _exp(x: Any) -> Any:
    """e to a power; 0 where that is below 1e-37."""

    def named(value: Any, body: Callable[[Any], Any]) -> Any:
        name = tirx.Var("v", "float32")
        return tirx.Let(name, value, body(name))

    def number(value: float) -> Any:
        return tirx.const(value, "float32")

    def of(x: Any) -> Any:
        return named(x * number(1 / math.log(2)) + number(_ROUNDS), lambda t: reduced(x, t))

    def reduced(x: Any, t: Any) -> Any:
        n = t - number(_ROUNDS)
        return named(x - n * number(_LN2_HIGH) - n * number(_LN2_LOW), lambda r: scaled(x, r, t))

    def scaled(x: Any, r: Any, t: Any) -> Any:
        result = number(_EXP[0])
        for one in _EXP[1:]:
            result = result * r + number(one)
        bits = (tirx.reinterpret("int32", t) << tirx.const(23, "int32")) + tirx.const(126 << 23, "int32")
        result = result * tirx.reinterpret("float32", bits)
        result = tirx.Select(x < number(-86), number(0), result)
        return tirx.Select(x > number(88.72), number(math.inf), result)

    return named(x.astype("float32"), of)


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "round_float32": lambda x: x.astype("float32"),
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    # (A sum that follows must not take in the product unrounded.)
    "multiply": lambda a, b: exact(a * b),
    "divide": lambda a, b: tirx.div(a, b),
    "sqrt": tirx.sqrt,
    "negative": lambda x: _ZERO - x,
    "absolute": lambda x: tirx.Select(x < _ZERO, _ZERO - x, x),
    "exp": _exp,
    "relu": lambda x: tirx.Select(x < _ZERO, _ZERO, x),
    # (TVM takes the opposite of "not less" for "less", which it is not of NaN.)
    "isnan": lambda x: tirx.Select(_known(x), _ZERO, tirx.const(1, "float32")),
    # A NaN of either stays.
    "maximum": lambda a, b: tirx.Select(a < b, b, tirx.Select(_known(b), a, b)),
    "minimum": lambda a, b: tirx.Select(a > b, b, tirx.Select(_known(b), a, b)),
    "less": lambda a, b: _truth(a < b),
    "less_equal": lambda a, b: _truth(a <= b),
    "greater": lambda a, b: _truth(a > b),
    "greater_equal": lambda a, b: _truth(a >= b),
    "equal": lambda a, b: _truth(a == b),
    "where": lambda c, a, b: tirx.Select(c == _ZERO, b, a),
}
"""By the names of `hbtvm.operators.pointwise.FUNCTIONS`, of float32."""
