"""Columns that nothing reads: neither computed nor, if nothing else reads what they are made of, fed.

From the outputs on, each node is told which of its columns are read; a product reads those that have a weight
(Hummingbird, section 5.2: injection and push-down of selections). From the leaves on, nodes are made anew
with these columns alone.
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
"""From a leaf and which of its columns are read, bool, to a leaf of these columns, or itself."""


def without_dead_columns(outputs: Sequence[Node], leaf: Leaf) -> tuple[list[Node], bool]:
    """Return networks without columns that nothing reads, and whether there were any."""
    order = in_order(*outputs)
    read = {id(node): np.zeros(node.width if node.inputs else 0, bool) for node in order}
    leaves = {id(node): set[int]() for node in order if not node.inputs}
    everything = {id(one) for one in outputs}
    for node in reversed(order):
        if not node.inputs:
            continue
        mask = read[id(node)]
        if id(node) in everything or not isinstance(node, _NARROWED):
            mask[:] = True
        for one, needed in zip(node.inputs, _needs(node, mask), strict=True):
            if one.inputs:
                read[id(one)][needed] = True
            else:
                leaves[id(one)].update(np.atleast_1d(needed).tolist())
    return _rebuilt(outputs, order, read, leaves, leaf)


_NARROWED = (
    Select, Concat, Elementwise, Contract, Reduce, Repeat, Bucketize, Interpolate, Lookup, OneHot, Monomials,
    LinearSum,
)  # fmt: skip
"""Operators that `_narrowed` makes with some of their columns; all columns of the others are computed."""


def _needs(node: Node, mask: np.ndarray) -> list[np.ndarray]:
    """Which columns of each input are read for some columns of a node: their positions."""
    at = np.flatnonzero(mask)
    match node:
        case Select():
            return [node.indices[at]]
        case Concat():
            ends = np.cumsum([0, *(part.width for part in node.parts)]).tolist()
            return [at[(at >= start) & (at < stop)] - start for start, stop in pairwise(ends)]
        case Elementwise():
            return [at if one.width > 1 else np.zeros(min(1, len(at)), int) for one in node.operands]
        case Contract():
            used = np.flatnonzero(np.any(node.weight[:, mask] != 0, axis=1))
            # A product of nothing has no form.
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
    return [np.arange(one.width) if one.inputs else np.array([-1]) for one in node.inputs]


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
            # Nothing at all is read of it: it is left out.
            dropped = True
            known[id(node)], places[id(node)] = node, np.zeros(0, int)
            continue
        inputs = [known[id(one)] for one in node.inputs]
        maps = [places[id(one)] for one in node.inputs]
        same = mask.all() and all(a is b for a, b in zip(inputs, node.inputs, strict=True))
        known[id(node)] = node if same else _narrowed(node, mask, inputs, maps)
        places[id(node)] = np.cumsum(mask) - 1
        dropped |= not mask.all()
    return [known[id(one)] for one in outputs], dropped


def _leaf(node: Node, needed: set[int], leaf: Leaf) -> tuple[Node, np.ndarray]:
    if isinstance(node, Constant) or -1 in needed or not needed or node.width >= 1 << 30:
        return node, np.arange(0 if node.width >= 1 << 30 else node.width)
    mask = np.zeros(node.width, bool)
    mask[list(needed)] = True
    found = node if mask.all() else leaf(node, mask)
    return found, np.arange(node.width) if found is node else np.cumsum(mask) - 1


def _moved(at: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Columns in the input as it is now; `places` is empty where that has no known width."""
    return (places[at] if len(places) else at).astype(np.int32)


def _some(x: Node, at: np.ndarray, places: np.ndarray) -> Node:
    """Columns of an input, by where they were before it lost some."""
    if isinstance(x, Constant):
        return Constant(x.values[at])
    return select(x, _moved(at, places))


def _narrowed(node: Node, mask: np.ndarray, inputs: list[Node], maps: list[np.ndarray]) -> Node:
    """A node with some of its columns, on inputs that may have lost some of theirs."""
    at = np.flatnonzero(mask)
    x = inputs[0]
    match node:
        case Select():
            indices = _moved(node.indices[at], maps[0])
            return select(x, indices) if len(maps[0]) else Select(x, indices)
        case Concat():
            needed = zip(inputs, _needs(node, mask), maps, strict=True)
            return concat([_some(one, own, places) for one, own, places in needed if len(own)])
        case Elementwise():
            wide = [one.width > 1 for one in node.operands]
            parts = [
                _some(one, at, places) if several else one
                for one, places, several in zip(inputs, maps, wide, strict=True)
            ]
            return Elementwise(node.function, tuple(parts)).checked()
        case Contract():
            kept = _needs(node, mask)[0]
            # What else reads the input may need more of it.
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
            # Factors that are 1 stand last.
            most = max(1, int((~none).sum(axis=1).max()))
            order = np.argsort(none, axis=1, kind="stable")
            return Monomials(x, np.take_along_axis(moved, order, axis=1)[:, :most].astype(np.int32))
        case LinearSum():
            return LinearSum(
                x, _moved(node.feature, maps[0]), node.shift, node.weight[:, mask], node.missing[:, mask],
                _moved(node.code_feature, maps[0]), node.sizes, node.entries[:, mask], node.fills_missing,
            )  # fmt: skip
    return node.on(*inputs)
