"""Random ensembles, not trained by any library, that cover every feature of `TreeEnsemble`."""

from __future__ import annotations

import numpy as np

from hbtvm.graph.trees.ensemble import LEAF, CategorySet, TreeEnsemble


def random_ensemble(
    rng: np.random.Generator,
    *,
    trees: int = 5,
    max_leaves: int = 8,
    features: int = 4,
    groups: int = 1,
    width: int = 1,
    compare_dtype: str = "float32",
    missing: str = "right",
    categories: bool = False,
    chain: bool = False,
    oblivious: bool = False,
) -> TreeEnsemble:
    """Return a random ensemble.

    Parameters
    ----------
    trees, max_leaves, features
        Sizes; each tree has 1 to `max_leaves` leaves, and at least one tree has them all.
    groups, width
        A tree adds to `width` of the ``groups * width`` outputs.
    missing
        ``"right"``, ``"left"``, ``"mixed"`` (node by node), ``"as_zero"``, ``"as_number"`` (0.4) or
        ``"zero"`` (zeros are missing).
    categories
        Whether some nodes of the last feature are categorical.
    chain
        Grow each tree as one long path instead of at random.
    oblivious
        Grow each tree level by level, and make one test in all nodes of a level.
    """
    sets = tuple(
        CategorySet(rng.random(int(rng.integers(1, 70))) < 0.5, bool(rng.random() < 0.5)) for _ in range(3)
    )
    fields: dict[str, list[object]] = {
        name: [] for name in ("feature", "threshold", "left", "right", "category")
    }
    offset = [0]
    level: list[int] = []
    for tree in range(trees):
        leaves = max_leaves if tree == 0 else int(rng.integers(1, max_leaves + 1))
        left, right = [LEAF], [LEAF]
        open_leaves, depth = [0], [0]
        for _ in range(leaves - 1):
            at = 0 if oblivious else -1 if chain else int(rng.integers(len(open_leaves)))
            node = open_leaves.pop(at)
            left[node], right[node] = len(left), len(left) + 1
            left += [LEAF, LEAF]
            right += [LEAF, LEAF]
            open_leaves += [left[node], right[node]]
            depth += [depth[node] + 1] * 2
        for node, child in enumerate(left):
            split = child != LEAF
            feature = int(rng.integers(features)) if split else LEAF
            category = int(rng.integers(len(sets))) if categories and feature == features - 1 else -1
            number = float(np.float32(rng.choice([0.0, 1.0, -1.0, round(rng.normal(), 1)])))
            fields["feature"].append(feature)
            fields["threshold"].append(number if split and category < 0 else 0.0)
            fields["left"].append(child)
            fields["right"].append(right[node])
            fields["category"].append(category)
        level += [64 * tree + own for own in depth]
        offset.append(offset[-1] + len(left))
    nodes = offset[-1]
    threshold = np.array(fields["threshold"], np.float64)
    numeric = (np.array(fields["left"]) != LEAF) & (np.array(fields["category"]) < 0)
    if compare_dtype == "float64":  # thresholds that are no float32 value
        threshold[numeric & (rng.random(nodes) < 0.5)] += 1e-12
    default_left = {
        "right": np.zeros(nodes, bool),
        "left": np.ones(nodes, bool),
        "mixed": rng.random(nodes) < 0.5,
        "as_zero": threshold >= 0,
        "as_number": threshold >= 0.4,
        "zero": rng.random(nodes) < 0.5,
    }[missing]
    leaf = np.array(fields["left"]) == LEAF
    feature, category = np.array(fields["feature"], np.int32), np.array(fields["category"], np.int32)
    if oblivious:
        _, first, of = np.unique(np.array(level), return_index=True, return_inverse=True)
        for values in (feature, threshold, category, default_left, numeric):
            values[:] = np.where(leaf, values, values[first][of])
    return TreeEnsemble(
        n_features=features,
        n_outputs=groups * width,
        compare_dtype="float64" if compare_dtype == "float64" else "float32",
        offset=np.array(offset, np.int64),
        feature=feature,
        threshold=threshold,
        left=np.array(fields["left"], np.int32),
        right=np.array(fields["right"], np.int32),
        default_left=default_left & ~leaf,
        zero_as_missing=numeric & (missing == "zero"),
        category_set=category,
        value=np.where(leaf[:, None], rng.normal(size=(nodes, width)), 0.0),
        tree_output=(np.arange(trees) % groups * width).astype(np.int32),
        base_score=rng.normal(size=groups * width),
        divisor=float(rng.integers(1, 4)),
        category_sets=sets if categories else (),
        negative_fraction_is_zero=bool(rng.random() < 0.5),
    ).validate()


def random_rows(rng: np.random.Generator, ensemble: TreeEnsemble, rows: int, dtype: str) -> np.ndarray:
    """Return rows of edge values: thresholds and their neighbours, zeros, NaN, infinities."""
    X = rng.normal(size=(rows, ensemble.n_features)).round(1).astype(dtype)
    special = [
        0.0,
        -0.0,
        np.nan,
        np.inf,
        -np.inf,
        1e-36,
        -1e-36,
        2e-35,
        -0.5,
        -1.0,
        63.0,
        64.0,
        69.0,
        70.0,
        1e9,
    ]
    thresholds = ensemble.threshold[ensemble.left != LEAF][:50].astype(dtype)
    around = [
        thresholds,
        np.nextafter(thresholds, np.array(np.inf, dtype)),
        np.nextafter(thresholds, np.array(-np.inf, dtype)),
    ]
    pool = np.concatenate([np.array(special, dtype), *around])
    at = rng.random(X.shape) < 0.4
    X[at] = rng.choice(pool, int(at.sum()))
    if ensemble.category_sets:
        column = X[:, -1]
        at = rng.random(rows) < 0.7
        column[at] = rng.integers(-2, 75, int(at.sum()))
    return X
