"""Forests of a given shape, without training: kernel times depend on shapes, not on learnt values."""

from __future__ import annotations

import numpy as np

from hbtvm.graph.graph import Graph, InputSpec
from hbtvm.graph.outputs.output import OutputSpec
from hbtvm.graph.trees.ensemble import LEAF, TreeEnsemble
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
    ensemble = TreeEnsemble(
        n_features=features,
        n_outputs=outputs,
        compare_dtype="float64" if compare_dtype == "float64" else "float32",
        offset=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        feature=feature,
        threshold=np.where(is_leaf, 0.0, bound),
        left=left,
        right=right,
        default_left=side[feature] & ~is_leaf & missing,
        zero_as_missing=np.zeros(nodes, bool),
        category_set=np.full(nodes, -1, np.int32),
        value=np.where(is_leaf[:, None], value, 0.0),
        tree_output=(np.arange(trees) * width % outputs).astype(np.int32),
        base_score=np.zeros(outputs),
        precise=precise,
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
