"""Reference implementation of ensembles in plain numpy, the oracle of kernels."""

from __future__ import annotations

import numpy as np

from hbtvm.graph.trees.ensemble import LEAF, ZERO_THRESHOLD, TreeEnsemble


def goes_left(ensemble: TreeEnsemble, node: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Return whether values go left at split nodes.

    `node`: int64, any shape: indices of split nodes in the forest.
    `x`: same shape: the values of the nodes' features, in float32 or float64.
    Returns bool array of the same shape.
    """
    x = x.astype(ensemble.compare_dtype).astype(np.float64)
    missing = np.isnan(x)
    near_zero = ensemble.zero_as_missing[node] & (np.abs(x) <= ZERO_THRESHOLD)
    with np.errstate(invalid="ignore"):
        below = x <= ensemble.threshold[node]
    left: np.ndarray = np.where(missing | near_zero, ensemble.default_left[node], below)
    for index in np.unique(ensemble.category_set[node]):
        if index < 0:
            continue
        here = ensemble.category_set[node] == index
        left[here] = _category_left(ensemble, int(index), x[here], ensemble.default_left[node[here]])
    return left


def _category_left(ensemble: TreeEnsemble, index: int, x: np.ndarray, default: np.ndarray) -> np.ndarray:
    chosen = ensemble.category_sets[index]
    size = len(chosen.member)
    low = -1.0 if ensemble.negative_fraction_is_zero else 0.0
    above = x > low if ensemble.negative_fraction_is_zero else x >= low
    with np.errstate(invalid="ignore"):
        inside = above & (x < size)
    category = np.trunc(np.where(inside, x, 0)).astype(np.int64)
    left = np.full(x.shape, chosen.outside_left)
    left[inside] = chosen.member[category[inside]]
    return np.where(np.isnan(x), default, left)


def leaves(ensemble: TreeEnsemble, X: np.ndarray) -> np.ndarray:
    """Return the leaf that each row reaches in each tree.

    `X`: float32 or float64, shape (n, n_features).
    Returns int64, shape (n, T): node indices, counted from each tree's first node.
    """
    offset = ensemble.offset[:-1].astype(np.int64)
    node = np.zeros((len(X), ensemble.n_trees), np.int64)
    rows = np.arange(len(X))[:, None]
    while True:
        flat = node + offset
        active = ensemble.left[flat] != LEAF
        if not active.any():
            return node
        r, t = np.nonzero(active)
        at = flat[r, t]
        left = goes_left(ensemble, at, X[rows[r, 0], ensemble.feature[at]])
        node[r, t] = np.where(left, ensemble.left[at], ensemble.right[at])


def margins(ensemble: TreeEnsemble, X: np.ndarray) -> np.ndarray:
    """Return raw scores in float64: ``base_score + (sum of leaf values) / divisor``.

    `X`: float32 or float64, shape (n, n_features).
    Returns float64, shape (n, O).
    """
    at = leaves(ensemble, X) + ensemble.offset[:-1]
    out = np.zeros((len(X), ensemble.n_outputs))
    for t, first in enumerate(ensemble.tree_output):
        out[:, first : first + ensemble.value_width] += ensemble.value[at[:, t]]
    result: np.ndarray = ensemble.base_score + out / ensemble.divisor
    return result
