"""Rows for checks and timings of a network's kernels, and the size of rounding errors of its scores."""

from __future__ import annotations

import numpy as np

from hbtvm.graph.networks.network import Network
from hbtvm.operators.base import Input, Node, evaluate, in_order
from hbtvm.operators.distances import Distance
from hbtvm.operators.imputation import Imputation
from hbtvm.operators.pointwise import Elementwise
from hbtvm.operators.products import LinearSum
from hbtvm.operators.shapes import Select
from hbtvm.operators.tables import Bucketize, Interpolate, Lookup, OneHot

_MISSING = 0.1  # share of missing values in imputed columns
_NEAR = 0.1  # spread of rows about stored points, in the points' standard deviations


def network_rows(network: Network, rows: int, dtype: str, rng: np.random.Generator) -> np.ndarray:
    """Return random rows that suit the network: codes, and numbers near those of its tables.

    Returns `dtype`, shape (rows, n_features).
    """
    X = rng.normal(size=(rows, network.n_features))
    for node in network.nodes:
        if isinstance(node, Imputation):
            _leave_out(X, node, rng)
        at = _columns(node.inputs[0]) if len(node.inputs) == 1 else None
        if at is None:
            continue
        _draw(X, node, at, rng)
    return X.astype(dtype)


def _draw(X: np.ndarray, node: Node, at: np.ndarray, rng: np.random.Generator) -> None:
    """Draw the columns that a node reads directly from the rows."""
    rows = len(X)
    if isinstance(node, LinearSum):
        X[:, at[node.feature]] += node.shift
        for column, size in zip(node.code_feature.tolist(), node.sizes, strict=True):
            X[:, at[column]] = rng.integers(0, size, rows)
    elif isinstance(node, Lookup):
        for column, last in zip(node.column.tolist(), node.last.tolist(), strict=True):
            X[:, at[column]] = rng.integers(0, last + 1, rows)
    elif isinstance(node, OneHot):
        for column in np.unique(node.column).tolist():
            X[:, at[column]] = rng.choice(np.append(node.value[node.column == column], -1.0), rows)
    elif isinstance(node, Bucketize | Interpolate):
        edges = node.edges if isinstance(node, Bucketize) else node.at
        for column, points in zip(at.tolist(), edges, strict=True):
            low, high = np.min(points), np.max(points[np.isfinite(points)], initial=np.min(points))
            X[:, column] = rng.uniform(low - 0.1 * (high - low), high + 0.1 * (high - low) + 1e-9, rows)
    elif isinstance(node, Distance):
        near = np.nan_to_num(node.points[rng.integers(0, len(node.points), rows)])
        X[:, at] = near + _NEAR * rng.normal(size=near.shape) * np.nan_to_num(node.points).std(axis=0)


def _leave_out(X: np.ndarray, node: Imputation, rng: np.random.Generator) -> None:
    """Replace some of the values that a node imputes by NaN."""
    marks = node.missing
    at = _columns(marks.operands[0]) if isinstance(marks, Elementwise) and marks.function == "isnan" else None
    if at is not None:
        X[:, at] = np.where(rng.random((len(X), len(at))) < _MISSING, np.nan, X[:, at])


def _columns(node: Node) -> np.ndarray | None:
    """Return the columns of the rows that a node selects; None for other nodes."""
    if isinstance(node, Input):
        return np.arange(node.width)
    if isinstance(node, Select) and isinstance(node.x, Input):
        return node.indices
    return None


def network_scale(network: Network, X: np.ndarray) -> float:
    """Return the size that rounding errors of scores are relative to: the largest of any node's values.

    Sums may cancel, so the scores' size is not enough.
    """
    x = X.astype(np.float64)
    nodes = in_order(network.output)
    values = evaluate(nodes, lambda leaf: x)
    largest = 1.0
    for node, value in zip(nodes, values, strict=True):
        finite = value[np.isfinite(value)]
        if node.kind in ("contract", "linear_sum", "distance", "elementwise") and finite.size:
            largest = max(largest, float(np.abs(finite).max()))
    terms = max((node.inputs[0].width for node in nodes if node.kind in ("contract", "distance")), default=1)
    return largest * max(1.0, terms / 16.0) * 100.0
