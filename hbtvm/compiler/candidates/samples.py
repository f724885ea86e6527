"""Rows to check and time kernels on, and their expected sums."""

from __future__ import annotations

import itertools

import numpy as np

from hbtvm.graph.graph import KernelAnchor
from hbtvm.graph.networks.network import Linear, Network
from hbtvm.graph.networks.samples import network_rows, network_scale
from hbtvm.graph.reasons.anchor import TreeReasons
from hbtvm.graph.trees.ensemble import LEAF, TreeEnsemble
from hbtvm.graph.trees.reference import margins

CHECKED_ROWS = 509  # rows to check: a prime number, so that the last tile is always partial

_CHECKED_REASONS = 37  # the same for Shapley values, whose reference takes long

_SUMMED = 256
"""Most terms of a float64 sum whose rounding errors stay well below 1e-13 of the terms' magnitudes."""


def sample_rows(anchor: KernelAnchor, rows: int, dtype: str, seed: int = 0) -> np.ndarray:
    """Return random rows that exercise an anchor about as widely as real data.

    Some values of the first rows are missing. For trees see `_tree_rows`; for linear models numbers spread
    around the shifts, and codes cover all table entries. Returns `dtype`, shape (rows, n_features).
    """
    rng = np.random.default_rng(seed)
    if isinstance(anchor, TreeReasons):
        return _tree_rows(anchor.ensemble, rows, dtype, rng)
    if isinstance(anchor, TreeEnsemble):
        return _tree_rows(anchor, rows, dtype, rng)
    if isinstance(anchor, Network):
        return network_rows(anchor, rows, dtype, rng)
    return _linear_rows(anchor, rows, dtype, rng)


def checked_rows(anchor: KernelAnchor) -> int:
    """Return the number of rows on which an anchor's kernels are checked."""
    return _CHECKED_REASONS if isinstance(anchor, TreeReasons) else CHECKED_ROWS


def plain_sums(anchor: KernelAnchor, X: np.ndarray) -> np.ndarray:
    """Return the sums that a kernel computes: float64, shape (n, O), without base score and divisor."""
    if isinstance(anchor, Network):
        return anchor.reference(X)
    if isinstance(anchor, Linear | TreeReasons):
        scores, divisor = anchor.reference(X), anchor.divisor
    else:
        scores, divisor = margins(anchor, X), anchor.divisor
    sums: np.ndarray = (scores - anchor.base_score) * divisor
    return sums


def tolerance_of(value_dtype: str, scale: float) -> float:
    """Return the absolute tolerance of sums with a magnitude (`error_scale`), for a type of leaf values."""
    return (1e-6 if value_dtype == "float32" else 1e-13) * scale


def error_scale(anchor: KernelAnchor, X: np.ndarray) -> float:
    """Return the magnitude that rounding errors are relative to.

    For trees the sum of their largest absolute leaf values; for linear models the largest sum of absolute
    terms of any row.
    """
    if isinstance(anchor, TreeReasons):
        return error_scale(anchor.ensemble, X)
    if isinstance(anchor, TreeEnsemble):
        largest = np.maximum.reduceat(np.abs(anchor.value).max(axis=1), anchor.offset[:-1])
        return float(largest.sum())
    if isinstance(anchor, Network):
        return network_scale(anchor, X)
    sums = anchor.sums
    x = X[:, sums.feature].astype(np.float64)
    # Both parts of the difference: (x - shift) may be small although x is not.
    sizes = np.where(np.isnan(x), 0.0, np.abs(x)) + np.abs(sums.shift)
    total = sizes @ np.abs(sums.weight) + np.abs(sums.missing).sum(axis=0)
    for table in np.split(sums.entries, np.cumsum(sums.sizes, dtype=np.int64)):
        total += np.abs(table).max(axis=0, initial=0.0)
    terms = len(sums.feature) + len(sums.sizes)
    # Subtracting the base from the reference's sums rounds, too.
    return float((total + np.abs(anchor.base_score)).max(initial=0.0)) * max(1.0, terms / _SUMMED)


def _linear_rows(linear: Linear, rows: int, dtype: str, rng: np.random.Generator) -> np.ndarray:
    X = rng.normal(size=(rows, linear.n_features))
    sums = linear.sums
    X[:, sums.feature] += sums.shift
    few = X[:CHECKED_ROWS]
    few[rng.random(few.shape) < 0.02] = np.nan
    for feature, size in zip(sums.code_feature.tolist(), sums.sizes, strict=True):
        X[:, feature] = rng.integers(0, size, rows)
    return X.astype(dtype)


def _tree_rows(ensemble: TreeEnsemble, rows: int, dtype: str, rng: np.random.Generator) -> np.ndarray:
    """Return random rows that spread over a model's leaves.

    Values are drawn around each feature's thresholds, category codes from the range of the model's sets; a
    few values are missing or infinite.
    """
    X = rng.normal(size=(rows, ensemble.n_features)).astype(dtype)
    split = ensemble.left != LEAF
    order = np.argsort(ensemble.feature[split], kind="stable")
    nodes = np.flatnonzero(split)[order]
    bounds = np.searchsorted(ensemble.feature[nodes], np.arange(ensemble.n_features + 1))
    for feature, (start, stop) in enumerate(itertools.pairwise(bounds)):
        tree_nodes = nodes[start:stop]
        if not len(tree_nodes):
            continue
        sets = ensemble.category_set[tree_nodes]
        if np.any(sets >= 0):
            size = max(len(ensemble.category_sets[i].member) for i in np.unique(sets[sets >= 0]))
            X[:, feature] = rng.integers(-1, size + 1, rows)
            continue
        thresholds = np.sort(ensemble.threshold[tree_nodes])
        position = rng.random(rows) * (len(thresholds) + 1) - 1
        below = np.clip(np.floor(position), 0, len(thresholds) - 1).astype(np.int64)
        above = np.minimum(below + 1, len(thresholds) - 1)
        share = np.clip(position - below, 0, 1)
        with np.errstate(over="ignore", invalid="ignore"):
            X[:, feature] = thresholds[below] * (1 - share) + thresholds[above] * share
        X[position < 0, feature] = -np.inf
    special = rng.random((min(rows, CHECKED_ROWS), ensemble.n_features))
    X[: len(special)][special < 0.02] = np.nan
    X[: len(special)][(special > 0.02) & (special < 0.03)] = 0
    X[: len(special)][special > 0.99] = np.inf
    return X
