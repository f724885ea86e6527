"""Recognition of formulas in nodes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hbtvm.operators.base import Input, Node


def operand(node: Node, formula: Callable[[Node], Node], width: int | None = None) -> Node | None:
    """Return the node x of which a node is `formula(x)`; None if it is none.

    Parameters
    ----------
    width
        Of x; the node's own width if None.
    """
    hole, found = Input(node.width if width is None else width), list[Node]()

    def same(one: Node, other: Node) -> bool:
        if other is hole:
            found.append(one)
            return one is found[0] and one.width == hole.width
        if (one.kind, one.width, one.attributes()) != (other.kind, other.width, other.attributes()):
            return False
        tables, others = one.tables().values(), other.tables().values()
        return (
            len(one.inputs) == len(other.inputs)
            and all(map(np.array_equal, tables, others))
            and all(map(same, one.inputs, other.inputs))
        )

    return found[0] if same(node, formula(hole)) else None
