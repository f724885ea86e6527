"""Forests of a given shape, without training: kernel times depend on shapes, not on learnt values."""

from __future__ import annotations

from typing import Literal

import numpy as np

from hbtvm.graph.graph import Graph, InputSpec
from hbtvm.graph.outputs.output import OutputSpec
from hbtvm.graph.trees.ensemble import LEAF, TreeEnsemble
from hbtvm.graph.trees.rounding import float32_at_most
from hbtvm.operators.base import Input


def graph(
    *,
    trees: int,
    leaves: int,
    features: int,
    outputs: int = 1,
    width: int = 1,
    depth: int | None = None,
    missing: bool = False,
    compare_dtype: str = "float32",
    precise: bool = False,
    thresholds: int | None = None,
    seed: int = 0,
) -> Graph:
    """A regressor of random trees.

    Parameters
    ----------
    leaves
        Leaves of each tree; leaves to split are drawn at random, as leaf-wise training looks.
    outputs, width
        Outputs, and outputs that one leaf adds to; successive trees serve successive outputs.
    depth
        Deepest a leaf may lie; None for no limit.
    missing
        Whether missing values go left at some features and right at others.
    precise
        Whether leaf values are kept in float64, as in forests of two classes.
    thresholds
        Most distinct thresholds of a feature, as boosting on bins has; None for no limit.
    """
    rng = np.random.default_rng(seed)
    parts = [_tree(rng, leaves, depth) for _ in range(trees)]
    sizes = np.array([len(left) for left, _ in parts])
    left = np.concatenate([left for left, _ in parts])
    right = np.concatenate([right for _, right in parts])
    nodes, is_leaf = len(left), left == LEAF
    feature = np.where(is_leaf, LEAF, rng.integers(features, size=nodes)).astype(np.int32)
    side = rng.random(features) < 0.5
    value = rng.normal(size=(nodes, width)) * 0.1
    bound = rng.normal(size=nodes).astype(np.float32)
    if thresholds is not None:
        known = np.sort(rng.normal(size=thresholds).astype(np.float32))
        bound = known[np.minimum(np.searchsorted(known, bound), thresholds - 1)]
    return _regressor(
        features,
        sizes,
        left,
        right,
        feature,
        bound,
        value,
        default_left=side[feature] & ~is_leaf & missing,
        outputs=outputs,
        compare_dtype="float64" if compare_dtype == "float64" else "float32",
        precise=precise,
    )


def grown(*, trees: int, leaves: int, features: int, seed: int = 0) -> Graph:
    """A regressor of trees grown on random rows until each leaf has one: depth is not limited.

    Each tree splits `leaves` rows of normal numbers, by any feature and between two rows of a node, and knows
    how many rows reached each node.
    """
    rng = np.random.default_rng(seed)
    sizes = np.full(trees, 2 * leaves - 1)
    left, right, feature = (np.full(sizes.sum(), LEAF, np.int32) for _ in range(3))
    bound, cover = np.zeros((2, len(left)))
    for tree in range(trees):
        here = slice(tree * sizes[0], (tree + 1) * sizes[0])
        left[here], right[here], feature[here], bound[here], cover[here] = _grow(rng, leaves, features)
    value = rng.normal(size=(len(left), 1)) * 0.1
    return _regressor(features, sizes, left, right, feature, bound, value, cover=cover)


def _grow(rng: np.random.Generator, leaves: int, features: int) -> tuple[np.ndarray, ...]:
    """Left and right children, features, thresholds and covers of a tree's nodes, by level."""
    rows = rng.normal(size=(leaves, features)).astype(np.float32)
    left, right, feature = np.full((3, 2 * leaves - 1), LEAF, np.int32)
    bound, cover = np.zeros((2, 2 * leaves - 1))
    cover[0] = leaves
    # The rows of the level's splits, split by split, the splits' nodes, and the nodes before the next level.
    order, split, before = np.arange(leaves), np.arange(1), 1
    while len(split):
        count = cover[split].astype(np.int64)
        start = np.cumsum(count) - count
        first = rng.integers(count)
        other = (first + 1 + rng.integers(count - 1)) % count
        feature[split] = rng.integers(features, size=len(split))
        pair = rows[order[start + np.stack([first, other])], feature[split]].astype(np.float64)
        bound[split] = float32_at_most(pair.mean(axis=0))
        child = before + np.arange(2 * len(split))
        left[split], right[split] = child[::2], child[1::2]
        of = np.repeat(np.arange(len(split)), count)
        side = 2 * of + (rows[order, feature[split][of]] > bound[split][of])
        order = order[np.argsort(side, kind="stable")]
        cover[child] = np.bincount(side, minlength=len(child))
        split, before = child[cover[child] > 1], before + len(child)
        order = order[np.repeat(cover[child] > 1, cover[child].astype(np.int64))]
    return left, right, feature, bound, cover


def _regressor(
    features: int,
    sizes: np.ndarray,
    left: np.ndarray,
    right: np.ndarray,
    feature: np.ndarray,
    bound: np.ndarray,
    value: np.ndarray,
    *,
    outputs: int = 1,
    compare_dtype: Literal["float32", "float64"] = "float32",
    default_left: np.ndarray | None = None,
    precise: bool = False,
    cover: np.ndarray | None = None,
) -> Graph:
    """A regressor of trees of the given numbers of nodes; see `TreeEnsemble`."""
    trees, nodes, is_leaf = len(sizes), len(left), left == LEAF
    width = value.shape[1]
    ensemble = TreeEnsemble(
        n_features=features,
        n_outputs=outputs,
        compare_dtype=compare_dtype,
        offset=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        feature=feature,
        threshold=np.where(is_leaf, 0.0, bound),
        left=left,
        right=right,
        default_left=np.zeros(nodes, bool) if default_left is None else default_left,
        zero_as_missing=np.zeros(nodes, bool),
        category_set=np.full(nodes, -1, np.int32),
        value=np.where(is_leaf[:, None], value, 0.0),
        tree_output=(np.arange(trees) * width % outputs).astype(np.int32),
        base_score=np.zeros(outputs),
        precise=precise,
        cover=cover,
    ).validate()
    output = OutputSpec("regressor", outputs, {"response": Input(outputs)})
    return Graph("synthetic", f"{trees} trees", InputSpec(features), ensemble, output)


def _tree(rng: np.random.Generator, leaves: int, depth: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Children of each node."""
    left, right, level = [LEAF], [LEAF], [0]
    frontier = [0]
    while len(left) < 2 * leaves - 1 and frontier:
        at = int(rng.integers(len(frontier)))
        frontier[at], frontier[-1] = frontier[-1], frontier[at]
        node = frontier.pop()
        left[node], right[node] = len(left), len(left) + 1
        for _ in range(2):
            if depth is None or level[node] + 1 < depth:
                frontier.append(len(left))
            left.append(LEAF)
            right.append(LEAF)
            level.append(level[node] + 1)
    return np.array(left, np.int32), np.array(right, np.int32)
