"""Trees cut into pieces of few leaves, whose values add up to the tree's.

A piece holds the splits above a subtree, the subtree, and zero in place of all other leaves::

          a                a              a
         / \\              / \\            / \\
        b   c      =      b   0     +    0   c
       / \\ / \\           / \\                / \\
      1  2 3  4         1   2              3   4

For a row, one piece has the leaf's value and the others 0, so that sums are exact.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from hbtvm.graph.trees.ensemble import LEAF
from hbtvm.strategies.trees.forest import Forest

_NONE = -1  # source of a leaf that is 0


def cut(forest: Forest, most: int) -> Forest:
    """Return a forest of trees of at most `most` leaves whose sums are those of `forest`.

    The forest is at most ``most - 1`` levels deep. Pieces take the place of their tree in its group.
    """
    pieces: list[tuple[list[int], list[int], list[int]]] = []
    members: list[list[int]] = []  # numbers of each tree's pieces
    for start, end in zip(forest.offset[:-1], forest.offset[1:], strict=True):
        own = list(_pieces(forest.left[start:end].tolist(), forest.right[start:end].tolist(), most))
        members.append(list(range(len(pieces), len(pieces) + len(own))))
        pieces += [
            (left, right, [n + int(start) if n != _NONE else n for n in source])
            for left, right, source in own
        ]
    source = np.concatenate([np.array(nodes) for _, _, nodes in pieces])
    zero, at = source == _NONE, np.maximum(source, 0)
    groups = [
        [piece for tree in trees if tree >= 0 for piece in members[tree]] for trees in forest.group_trees
    ]
    group_trees = np.full((len(groups), max(map(len, groups))), -1, np.int64)
    for row, group in zip(group_trees, groups, strict=True):
        row[: len(group)] = group
    return replace(
        forest,
        offset=np.concatenate([[0], np.cumsum([len(nodes) for _, _, nodes in pieces])]).astype(np.int64),
        left=np.concatenate([np.array(left, np.int32) for left, _, _ in pieces]),
        right=np.concatenate([np.array(right, np.int32) for _, right, _ in pieces]),
        column=np.where(zero, 0, forest.column[at]).astype(forest.column.dtype),
        threshold=np.where(zero, 0, forest.threshold[at]).astype(forest.threshold.dtype),
        value=np.where(zero[:, None], 0, forest.value[at]).astype(forest.value.dtype),
        group_trees=group_trees,
        cover=None,
    )


def _pieces(left: list[int], right: list[int], most: int) -> Iterator[tuple[list[int], list[int], list[int]]]:
    """Yield the pieces of a tree: left and right children, and each node's source in the tree.

    A piece takes the largest subtree that fits with the splits above it, again and again. A subtree whose
    leaves are all in earlier pieces becomes one leaf of value 0.
    """
    order, parent, depth = [0], [0] * len(left), [0] * len(left)
    for node in order:
        if left[node] != LEAF:
            for child in (left[node], right[node]):
                order.append(child)
                parent[child], depth[child] = node, depth[node] + 1
    size = [1] * len(left)  # leaves below a node, where subtrees of earlier pieces count as one
    fresh = [1] * len(left)  # those not in an earlier piece
    for node in reversed(order):
        if left[node] != LEAF:
            size[node] = fresh[node] = size[left[node]] + size[right[node]]
    while fresh[0]:
        zeros, taken, room = {0}, [], most - 1
        while fits := list(_fitting(left, right, depth, size, fresh, zeros, room)):
            leaves, cost, node, top = max(fits)
            room += cost
            taken.append(node)
            zeros.remove(top)
            while node != top:
                above = parent[node]
                zeros.add(right[above] if left[above] == node else left[above])
                node = above
        yield _without(left, right, zeros.union(node for node in order if not fresh[node]))
        for node in taken:
            leaves, fresh[node], size[node] = fresh[node], 0, 1
            while node != 0:
                node = parent[node]
                fresh[node] -= leaves
                size[node] = size[left[node]] + size[right[node]] if fresh[node] else 1


def _fitting(
    left: Sequence[int],
    right: Sequence[int],
    depth: Sequence[int],
    size: Sequence[int],
    fresh: Sequence[int],
    zeros: set[int],
    room: int,
) -> Iterator[tuple[int, int, int, int]]:
    """Yield the subtrees that fit a piece, as (fresh leaves, -additional leaves, node, its zero leaf).

    `zeros`: the leaves of value 0 of the piece so far.
    `room`: leaves that may be added.
    """
    stack = [(top, top) for top in zeros]
    while stack:
        node, top = stack.pop()
        # The node's leaves and one beside each split on the way take the place of a leaf of value 0.
        cost = size[node] + depth[node] - depth[top] - 1
        if fresh[node] and cost <= room:
            yield fresh[node], -cost, node, top
        elif fresh[node] and left[node] != LEAF:
            stack += [(left[node], top), (right[node], top)]


def _without(
    left: Sequence[int], right: Sequence[int], zeros: set[int]
) -> tuple[list[int], list[int], list[int]]:
    """Return a tree with leaves of value 0 in place of some nodes, parents first."""
    kept, lefts, rights = [0], [], []
    for node in kept:
        inner = left[node] != LEAF and node not in zeros
        lefts.append(len(kept) if inner else LEAF)
        rights.append(len(kept) + 1 if inner else LEAF)
        if inner:
            kept += [left[node], right[node]]
    return lefts, rights, [_NONE if node in zeros else node for node in kept]
