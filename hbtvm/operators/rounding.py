"""Rounding to float32 in networks, whose edges are float64.

A front end rounds each value that its library keeps in float32 (`single`). Sums and products need only agree
with the library's within a tolerance, so rounding matters only if a decision depends on the last bit (a
comparison, a tree's split, a position), or if little but last bits is left (the distance of near points).
`loosened` removes the roundings that no decision reads.
"""

from __future__ import annotations

from collections.abc import Sequence

from hbtvm.operators.base import Node, in_order
from hbtvm.operators.pointwise import Elementwise, apply
from hbtvm.operators.shapes import Reduce

_COMPARISONS = frozenset(("less", "less_equal", "greater", "greater_equal", "equal"))
_STEPS = frozenset(("floor", "ceil", "rint", "trunc", "sign", "isnan"))

_CHOICES = frozenset(("negative", "absolute", "relu", "maximum", "minimum", "where", "round_float32"))
"""Functions that return one of their operands, but for the sign."""

_ROUNDED_ONCE = frozenset(("add", "subtract", "multiply", "divide", "sqrt", "square", "reciprocal"))
"""Functions whose float64 result, rounded to float32, is the float32 result."""

_REARRANGING = frozenset(("select", "concat", "repeat", "take", "lookup", "one_hot", "constant", "rows"))
_DECIDING = frozenset(("trees", "bucketize", "one_hot", "take", "lookup", "distance"))
"""Kinds of nodes that compare their input, take it for a position, or take differences of it."""


def single(node: Node) -> Node:
    """Round a node's values to float32, unless its operator returns float32 numbers for float32 inputs."""
    match node:
        case Elementwise():
            kept = node.function in _COMPARISONS | _STEPS | _CHOICES
        case Reduce():
            kept = node.function in ("max", "min", "argmax", "argmin")
        case _:
            kept = node.kind in _REARRANGING
    return node if kept else apply("round_float32", node)


def loosened(output: Node, decides: bool = False) -> Node:
    """Return a network without the roundings to float32 that no decision depends on.

    `decides`: whether the reader of `output` compares it.
    """
    nodes = in_order(output)
    needed = {id(output)} if decides else set()
    for node in reversed(nodes):
        needed |= {id(x) for x in _exactly_read(node, id(node) in needed)}
    known: dict[int, Node] = {}
    for node in nodes:
        inputs = [known[id(x)] for x in node.inputs]
        if isinstance(node, Elementwise) and node.function == "round_float32" and id(node) not in needed:
            known[id(node)] = inputs[0]
            continue
        same = all(a is b for a, b in zip(inputs, node.inputs, strict=True))
        known[id(node)] = node if same else node.on(*inputs)
    return known[id(output)]


def _exactly_read(node: Node, needed: bool) -> Sequence[Node]:
    """Return the inputs whose last bits a decision of the node, or (if `needed`) its value, depends on."""
    match node:
        case Elementwise(function="where"):
            return node.inputs if needed else node.inputs[:1]
        case Elementwise():
            if node.function in _COMPARISONS | _STEPS:
                return node.inputs
            return node.inputs if needed and node.function in _CHOICES | _ROUNDED_ONCE else ()
        case Reduce():
            decides = node.function in ("argmax", "argmin")
            return node.inputs if decides or (needed and node.function in ("max", "min")) else ()
    if node.kind in _DECIDING or (needed and node.kind in _REARRANGING):
        return node.inputs
    return ()
