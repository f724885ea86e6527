"""Remove splits that every row passes the same way."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from hbtvm.graph.trees.ensemble import LEAF, TreeEnsemble

LEFT, RIGHT, OPEN = 1, 0, -1
"""Decisions of a split: every row goes left, every row goes right, or neither."""


def prune(ensemble: TreeEnsemble, decided: np.ndarray) -> tuple[TreeEnsemble, np.ndarray]:
    """Replace decided splits by the child that all rows go to.

    `ensemble`: a valid ensemble.
    `decided`: int8, shape (N,): `LEFT`, `RIGHT` or `OPEN`; at leaves `OPEN`.
    Returns the ensemble, and the old index of each of its nodes, int64.
    """
    nodes = np.arange(ensemble.n_nodes, dtype=np.int64)
    if not np.any(decided != OPEN):
        return ensemble, nodes
    base = np.repeat(ensemble.offset[:-1], np.diff(ensemble.offset)).astype(np.int64)
    left, right = base + ensemble.left, base + ensemble.right
    # The node that a row reaches from a node through decided splits.
    target = np.where(decided == LEFT, left, np.where(decided == RIGHT, right, nodes))
    while True:
        further = target[target]
        if np.array_equal(further, target):
            break
        target = further

    kept = np.zeros(len(nodes), bool)
    roots = target[ensemble.offset[:-1]]
    frontier = roots
    while len(frontier):
        kept[frontier] = True
        parents = frontier[ensemble.left[frontier] != LEAF]
        frontier = np.concatenate([target[left[parents]], target[right[parents]]])

    tree = np.repeat(np.arange(ensemble.n_trees), np.diff(ensemble.offset))
    is_root = np.zeros(len(nodes), bool)
    is_root[roots] = True
    old = np.flatnonzero(kept)
    old = old[np.lexsort((old, ~is_root[old], tree[old]))]
    new = np.full(len(nodes), LEAF, np.int64)
    new[old] = np.arange(len(old))
    offset = np.concatenate([[0], np.cumsum(np.bincount(tree[old], minlength=ensemble.n_trees))])
    leaf = ensemble.left[old] == LEAF
    start = offset[tree[old]]

    def child(of: np.ndarray) -> np.ndarray:
        inside = target[np.where(leaf, old, of[old])]
        result: np.ndarray = np.where(leaf, LEAF, new[inside] - start).astype(np.int32)
        return result

    pruned = replace(
        ensemble,
        offset=offset.astype(np.int64),
        feature=ensemble.feature[old],
        threshold=ensemble.threshold[old],
        left=child(left),
        right=child(right),
        default_left=ensemble.default_left[old],
        zero_as_missing=ensemble.zero_as_missing[old],
        category_set=ensemble.category_set[old],
        value=ensemble.value[old],
        cover=None if ensemble.cover is None else ensemble.cover[old],
        leaf_id=None if ensemble.leaf_id is None else ensemble.leaf_id[old],
    )
    return pruned, old
