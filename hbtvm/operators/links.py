"""From scores to probabilities, as compositions of operators."""

from __future__ import annotations

from collections.abc import Sequence

from hbtvm.operators.base import Node
from hbtvm.operators.pointwise import apply
from hbtvm.operators.shapes import concat, reduce


def softmax(scores: Node) -> Node:
    """e to the power of each column divided by the sum of these."""
    powers = apply("exp", apply("subtract", scores, reduce("max", scores)))
    return apply("divide", powers, reduce("sum", powers))


def shares(values: Node) -> Node:
    """Each row divided by its sum; rows of zeros become equal shares."""
    total = reduce("sum", values)
    return apply("where", total, apply("divide", values, total), 1.0 / values.width)


def two_classes(second: Node) -> Node:
    """Probabilities of two classes from the second one's, width 1."""
    return concat([apply("subtract", 1.0, second), second])


def total(parts: Sequence[Node]) -> Node:
    """The sum of nodes of the same width, added from the first to the last."""
    result = parts[0]
    for part in parts[1:]:
        result = apply("add", result, part)
    return result
