"""Simplify selections and concatenations; fold constants."""

from __future__ import annotations

import numpy as np

from hbtvm.graph.passes.sweep import Readers
from hbtvm.operators.base import Constant, Node, constant
from hbtvm.operators.pointwise import Elementwise
from hbtvm.operators.shapes import Concat, Reduce, Repeat, Select, concat, select


def rearranged(node: Node, readers: Readers) -> Node:
    """Merge selections with selections and concatenations; drop operators that change nothing."""
    if isinstance(node, Select):
        return _selected(node)
    if isinstance(node, Concat):
        return _side_by_side(node)
    if isinstance(node, Repeat) and node.times == 1:
        return node.x
    if isinstance(node, Reduce) and node.x.width == node.groups and not node.function.startswith("arg"):
        return node.x
    return node


def _selected(node: Select) -> Node:
    x, at = node.x, node.indices
    if isinstance(x, Select):
        return select(x.x, x.indices[at])
    if isinstance(x, Repeat):
        return select(x.x, at % x.x.width if x.tiled else at // x.times)
    if isinstance(x, Constant):
        return Constant(x.values[at])
    if isinstance(x, Concat):
        ends = np.cumsum([part.width for part in x.parts])
        part = np.searchsorted(ends, at, side="right")
        first = int(part[0])
        if np.all(part == first):
            return select(x.parts[first], at - (ends[first] - x.parts[first].width))
    if len(at) == x.width and np.array_equal(at, np.arange(x.width)):
        return x
    return node


def _side_by_side(node: Concat) -> Node:
    parts: list[Node] = []
    for part in node.parts:
        parts += part.parts if isinstance(part, Concat) else (part,)
    merged: list[Node] = []
    for part in parts:
        before = merged[-1] if merged else None
        if before is not None and _source(before) is _source(part):
            merged[-1] = select(_source(part), np.concatenate([_indices(before), _indices(part)]))
        elif isinstance(before, Constant) and isinstance(part, Constant):
            merged[-1] = Constant(np.concatenate([before.values, part.values]))
        else:
            merged.append(part)
    if len(merged) == len(node.parts):
        return node
    return concat(merged)


def _source(node: Node) -> Node:
    return node.x if isinstance(node, Select) else node


def _indices(node: Node) -> np.ndarray:
    return node.indices if isinstance(node, Select) else np.arange(node.width)


def folded(node: Node, readers: Readers) -> Node:
    """Compute operators of constants; drop arithmetic that changes no number."""
    if node.inputs and all(isinstance(x, Constant) for x in node.inputs):
        with np.errstate(all="ignore"):
            return constant(node.reference(*(x.reference() for x in node.inputs)))
    if not isinstance(node, Elementwise) or len(node.operands) != 2:
        return node
    x, other = node.operands
    neutral = {"add": 0.0, "subtract": 0.0, "multiply": 1.0, "divide": 1.0}.get(node.function)
    if neutral is None or x.width != node.width:
        return node
    if isinstance(other, Constant) and np.all(other.values == neutral):
        return x
    return node
