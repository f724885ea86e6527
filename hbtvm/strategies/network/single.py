"""Float32 arithmetic: the nodes of a network that give the same numbers in float32, and their functions.

A network computes in float64. Where a library computes in float32, the network rounds after each operation
(``round_float32``): for float32 operands, the float64 result of +, -, *, / and the square root rounds to the
direct float32 result (float64 has more than twice as many digits; Figueroa, "When is double rounding
innocuous?", 1995). Kernels compute such nodes in float32, twice as many values at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from tvm import tirx

from hbtvm.operators.base import Node
from hbtvm.strategies.intrinsics.exact import exact

_ROUNDED = ("add", "subtract", "multiply", "divide", "sqrt")  # functions whose float32 result is rounded

_EXACT = (
    *("negative", "absolute", "relu", "isnan", "maximum", "minimum", "where"),
    *("less", "less_equal", "greater", "greater_equal", "equal"),
)
"""Functions whose results on float32 numbers are exact."""


def singles(nodes: Sequence[Node], approximate: frozenset[int] = frozenset()) -> frozenset[int]:
    """Return the numbers of the nodes that give the same results in float32, for float32 rows.

    `nodes`: each after its inputs.
    `approximate`: ids of further nodes to compute in float32.
    """
    at = {id(node): number for number, node in enumerate(nodes)}
    readers: list[list[Node]] = [[] for _ in nodes]
    for node in nodes:
        for source in node.inputs:
            readers[at[id(source)]].append(node)
    single: set[int] = set()
    for number, node in enumerate(nodes):
        inputs = [at[id(source)] for source in node.inputs]
        name = getattr(node, "function", None) if node.kind == "elementwise" else None
        narrow = all(source in single for source in inputs)
        if node.kind == "input" or id(node) in approximate:
            exact = True
        elif node.kind == "constant":
            values = node.tables()["values"]
            with np.errstate(over="ignore"):
                exact = bool(np.array_equal(values.astype(np.float32), values, equal_nan=True))
        elif node.kind in ("select", "repeat", "concat", "one_hot", "bucketize"):
            exact = narrow
        elif name in _ROUNDED:
            outputs = readers[number]
            exact = narrow and bool(outputs) and all(_rounds(source) for source in outputs)
        elif name == "round_float32":
            # Its result is float32; its input may have either type.
            exact = True
        else:
            exact = narrow and name in _EXACT
        if exact:
            single.add(number)
    return frozenset(single)


def _rounds(node: Node) -> bool:
    return node.kind == "elementwise" and getattr(node, "function", None) == "round_float32"


_ZERO = tirx.const(0, "float32")


def _truth(condition: Any) -> Any:
    return tirx.Select(condition, tirx.const(1, "float32"), tirx.const(0, "float32"))


def _known(x: Any) -> Any:
    return x >= tirx.const(-np.inf, "float32")


_EXP = [2 / math.factorial(n) for n in range(7, -1, -1)]
"""The series of 2 * exp(x): twice, so that a factor of 2**-125 still is a normal number."""

_ROUNDS = 1.5 * 2.0**23
"""Adding this to a number of moderate size leaves the nearest whole number in the lowest bits."""

_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440054690583e-4
"""The logarithm of 2 in two parts; products of the first with whole numbers are exact."""


def _exp(x: Any) -> Any:
    """Return e to a power; 0 below 1e-37."""

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
        for coefficient in _EXP[1:]:
            result = result * r + number(coefficient)
        bits = (tirx.reinterpret("int32", t) << tirx.const(23, "int32")) + tirx.const(126 << 23, "int32")
        result = result * tirx.reinterpret("float32", bits)
        result = tirx.Select(x < number(-86), number(0), result)
        return tirx.Select(x > number(88.72), number(math.inf), result)

    return named(x.astype("float32"), of)


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "round_float32": lambda x: x.astype("float32"),
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    # (Prevent a fused multiply-add with a later sum.)
    "multiply": lambda a, b: exact(a * b),
    "divide": lambda a, b: tirx.div(a, b),
    "sqrt": tirx.sqrt,
    "negative": lambda x: _ZERO - x,
    "absolute": lambda x: tirx.Select(x < _ZERO, _ZERO - x, x),
    "exp": _exp,
    "relu": lambda x: tirx.Select(x < _ZERO, _ZERO, x),
    # (TVM negates "not less" to "less", which is wrong for NaN.)
    "isnan": lambda x: tirx.Select(_known(x), _ZERO, tirx.const(1, "float32")),
    # NaN of either argument stays.
    "maximum": lambda a, b: tirx.Select(a < b, b, tirx.Select(_known(b), a, b)),
    "minimum": lambda a, b: tirx.Select(a > b, b, tirx.Select(_known(b), a, b)),
    "less": lambda a, b: _truth(a < b),
    "less_equal": lambda a, b: _truth(a <= b),
    "greater": lambda a, b: _truth(a > b),
    "greater_equal": lambda a, b: _truth(a >= b),
    "equal": lambda a, b: _truth(a == b),
    "where": lambda c, a, b: tirx.Select(c == _ZERO, b, a),
}
"""Float32 expressions of `hbtvm.operators.pointwise.FUNCTIONS` by name."""
