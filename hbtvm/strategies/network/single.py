"""Arithmetic in float32: which nodes of a network give the same numbers when computed so, and how.

A network computes in float64. Where a library computes in float32, what it does is rounded after each
operation (``round_float32``): of float32 operands, the float64 result of +, -, *, / and the square root
rounds to what float32 gives directly (float64 has more than twice as many digits; Figueroa, "When is double
rounding innocuous?", 1995). Such nodes are computed in float32, twice as many values at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from tvm import tirx

from hbtvm.operators.base import Node
from hbtvm.strategies.exact import exact

_ROUNDED = ("add", "subtract", "multiply", "divide", "sqrt")
"""Functions whose result is to be rounded."""

_EXACT = (
    *("negative", "absolute", "relu", "isnan", "maximum", "minimum", "where"),
    *("less", "less_equal", "greater", "greater_equal", "equal"),
)
"""Functions of float32 numbers that need no rounding."""


def singles(nodes: Sequence[Node]) -> frozenset[int]:
    """Numbers of the nodes of a network over float32 rows that are computed in float32, exactly.

    Parameters
    ----------
    nodes
        Each behind its inputs.
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
        if node.kind == "input":
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
