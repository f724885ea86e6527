"""Recognition of formulas in nodes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hbtvm.operators.base import Input, Node


def operand(node: Node, formula: Callable[[Node], Node], width: int | None = None) -> Node | None:
    """Return x if a node is `formula(x)`; else None.

    Parameters
    ----------
    width
        Width of x; the node's if None.
    """
    hole, matches = Input(node.width if width is None else width), list[Node]()

    def same(part: Node, pattern: Node) -> bool:
        if pattern is hole:
            matches.append(part)
            return part is matches[0] and part.width == hole.width
        if (part.kind, part.width, part.attributes()) != (pattern.kind, pattern.width, pattern.attributes()):
            return False
        tables, others = part.tables().values(), pattern.tables().values()
        return (
            len(part.inputs) == len(pattern.inputs)
            and all(map(np.array_equal, tables, others))
            and all(map(same, part.inputs, pattern.inputs))
        )

    return matches[0] if same(node, formula(hole)) else None
