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

    The largest subtree that fits with its path becomes a piece, and a leaf of value 0 in the others.
    """
    gone: set[int] = set()
    while True:
        order, parent, depth = [0], {0: 0}, {0: 0}
        for node in order:
            if left[node] != LEAF:
                for child in (left[node], right[node]):
                    order.append(child)
                    parent[child], depth[child] = node, depth[node] + 1
        size = dict.fromkeys(order, 1)
        for node in reversed(order):
            if left[node] != LEAF:
                size[node] = size[left[node]] + size[right[node]]
        if size[0] <= most:
            yield _without(left, right, gone)
            return
        fits = [node for node in order if left[node] != LEAF and size[node] + depth[node] <= most]
        best = node = max(fits, key=lambda node: size[node])
        beside = set()
        while node != 0:
            above = parent[node]
            beside.add(right[above] if left[above] == node else left[above])
            node = above
        yield _without(left, right, gone | beside)
        left[best] = right[best] = LEAF
        gone.add(best)


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
