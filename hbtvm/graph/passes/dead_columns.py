"""Remove columns that nothing reads, and feeds that only they need.

A pass from the outputs marks the columns that each node reads; a product reads those that have a weight
(Hummingbird, section 5.2: injection and push-down of selections). A pass from the leaves rebuilds the nodes
with the marked columns alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from hbtvm.operators.base import Constant, Node, in_order
from hbtvm.operators.pointwise import Elementwise
from hbtvm.operators.products import Contract, LinearSum, Monomials
from hbtvm.operators.shapes import Concat, Reduce, Repeat, Select, concat, select
from hbtvm.operators.tables import Bucketize, Interpolate, Lookup, OneHot, lookup

Leaf = Callable[[Node, np.ndarray], Node]
"""From a leaf and the mask of its read columns, bool, to a leaf of these columns, or itself."""


def without_dead_columns(outputs: Sequence[Node], leaf: Leaf) -> tuple[list[Node], bool]:
    """Return networks without columns that nothing reads, and whether there were any."""
    order = in_order(*outputs)
    read = {id(node): np.zeros(node.width if node.inputs else 0, bool) for node in order}
    leaves = {id(node): set[int]() for node in order if not node.inputs}
    everything = {id(node) for node in outputs}
    for node in reversed(order):
        if not node.inputs:
            continue
        mask = read[id(node)]
        if id(node) in everything or not isinstance(node, _NARROWED):
            mask[:] = True
        for x, needed in zip(node.inputs, _needs(node, mask), strict=True):
            if x.inputs:
                read[id(x)][needed] = True
            else:
                leaves[id(x)].update(np.atleast_1d(needed).tolist())
    return _rebuilt(outputs, order, read, leaves, leaf)


_NARROWED = (
    Select, Concat, Elementwise, Contract, Reduce, Repeat, Bucketize, Interpolate, Lookup, OneHot, Monomials,
    LinearSum,
)  # fmt: skip
"""Operators that `_narrowed` restricts to some columns; the others compute all of theirs."""


def _needs(node: Node, mask: np.ndarray) -> list[np.ndarray]:
    """Return the positions of the columns of each input that some columns of a node read."""
    at = np.flatnonzero(mask)
    match node:
        case Select():
            return [node.indices[at]]
        case Concat():
            ends = np.cumsum([0, *(part.width for part in node.parts)]).tolist()
            return [at[(at >= start) & (at < stop)] - start for start, stop in pairwise(ends)]
        case Elementwise():
            return [at if x.width > 1 else np.zeros(min(1, len(at)), int) for x in node.operands]
        case Contract():
            used = np.flatnonzero(np.any(node.weight[:, mask] != 0, axis=1))
            # A product needs at least one column.
            return [used if len(used) else np.zeros(min(1, len(at)), int)]
        case Reduce():
            size = node.x.width // node.groups
            return [(at[:, None] * size + np.arange(size)).ravel()]
        case Repeat():
            return [np.unique(at % node.x.width if node.tiled else at // node.times)]
        case Bucketize() | Interpolate():
            return [at]
        case Lookup() | OneHot():
            return [np.unique(node.column[at])]
        case Monomials():
            factors = np.unique(node.factors[at])
            factors = factors[factors < node.x.width]
            return [factors if len(factors) else np.zeros(min(1, len(at)), int)]
        case LinearSum():
            return [np.unique(np.concatenate([node.feature, node.code_feature]))]
    return [np.arange(x.width) if x.inputs else np.array([-1]) for x in node.inputs]


def _rebuilt(
    outputs: Sequence[Node],
    order: Sequence[Node],
    read: dict[int, np.ndarray],
    leaves: dict[int, set[int]],
    leaf: Leaf,
) -> tuple[list[Node], bool]:
    known: dict[int, Node] = {}
    places: dict[int, np.ndarray] = {}
    dropped = False
    for node in order:
        if not node.inputs:
            known[id(node)], places[id(node)] = _leaf(node, leaves[id(node)], leaf)
            continue
        mask = read[id(node)]
        if not mask.any():
            # Nothing reads the node.
            dropped = True
            known[id(node)], places[id(node)] = node, np.zeros(0, int)
            continue
        inputs = [known[id(x)] for x in node.inputs]
        maps = [places[id(x)] for x in node.inputs]
        same = mask.all() and all(a is b for a, b in zip(inputs, node.inputs, strict=True))
        known[id(node)] = node if same else _narrowed(node, mask, inputs, maps)
        places[id(node)] = np.cumsum(mask) - 1
        dropped |= not mask.all()
    return [known[id(node)] for node in outputs], dropped


def _leaf(node: Node, needed: set[int], leaf: Leaf) -> tuple[Node, np.ndarray]:
    if isinstance(node, Constant) or -1 in needed or not needed or node.width >= 1 << 30:
        return node, np.arange(0 if node.width >= 1 << 30 else node.width)
    mask = np.zeros(node.width, bool)
    mask[list(needed)] = True
    narrow = node if mask.all() else leaf(node, mask)
    return narrow, np.arange(node.width) if narrow is node else np.cumsum(mask) - 1


def _moved(at: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return the new positions of columns; `places` is empty if the input's width is unknown."""
    return (places[at] if len(places) else at).astype(np.int32)


def _some(x: Node, at: np.ndarray, places: np.ndarray) -> Node:
    """Return columns of an input, by their old positions."""
    if isinstance(x, Constant):
        return Constant(x.values[at])
    return select(x, _moved(at, places))


def _narrowed(node: Node, mask: np.ndarray, inputs: list[Node], maps: list[np.ndarray]) -> Node:
    """Return a node with some of its columns, on inputs that may have lost some of theirs."""
    at = np.flatnonzero(mask)
    x = inputs[0]
    match node:
        case Select():
            indices = _moved(node.indices[at], maps[0])
            return select(x, indices) if len(maps[0]) else Select(x, indices)
        case Concat():
            needed = zip(inputs, _needs(node, mask), maps, strict=True)
            return concat([_some(part, columns, places) for part, columns, places in needed if len(columns)])
        case Elementwise():
            wide = [operand.width > 1 for operand in node.operands]
            parts = [
                _some(operand, at, places) if several else operand
                for operand, places, several in zip(inputs, maps, wide, strict=True)
            ]
            return Elementwise(node.function, tuple(parts)).checked()
        case Contract():
            kept = _needs(node, mask)[0]
            # Other readers of the input may need more of its columns.
            weight = np.zeros((x.width, len(at)))
            weight[_moved(kept, maps[0])] = node.weight[np.ix_(kept, at)]
            return Contract(x, weight)
        case Reduce():
            return Reduce(node.function, _some(x, _needs(node, mask)[0], maps[0]), len(at))
        case Repeat():
            if mask.all():
                return Repeat(_some(x, np.arange(node.x.width), maps[0]), node.times, node.tiled)
            return _some(x, at % node.x.width if node.tiled else at // node.times, maps[0])
        case Bucketize():
            return Bucketize(_some(x, at, maps[0]), node.edges[at], node.side)
        case Interpolate():
            return Interpolate(_some(x, at, maps[0]), node.at[at], node.values[at])
        case Lookup():
            first, last = node.first[at].tolist(), node.last[at].tolist()
            tables = [node.entries[a : a + b + 1] for a, b in zip(first, last, strict=True)]
            return lookup(x, _moved(node.column[at], maps[0]).tolist(), tables)
        case OneHot():
            return OneHot(x, _moved(node.column[at], maps[0]), node.value[at])
        case Monomials():
            factors = node.factors[at]
            none = factors == node.x.width
            moved = np.where(none, x.width, maps[0][np.where(none, 0, factors)])
            # Factors of 1 come last.
            most = max(1, int((~none).sum(axis=1).max()))
            order = np.argsort(none, axis=1, kind="stable")
            return Monomials(x, np.take_along_axis(moved, order, axis=1)[:, :most].astype(np.int32))
        case LinearSum():
            return LinearSum(
                x, _moved(node.feature, maps[0]), node.shift, node.weight[:, mask], node.missing[:, mask],
                _moved(node.code_feature, maps[0]), node.sizes, node.entries[:, mask], node.fills_missing,
            )  # fmt: skip
    return node.on(*inputs)
