"""Trees behind transformers, folded, and the leaves in which rows end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import lightgbm as lgb
import numpy as np
import xgboost as xgb
from sklearn import ensemble

from hbtvm.frontends.files import from_object
from hbtvm.graph.columns.steps import (
    Arithmetic,
    Step,
)
from hbtvm.graph.columns.table import Column, Raw, Table
from hbtvm.graph.trees.ensemble import TreeEnsemble
from hbtvm.graph.trees.fold import Folded, fold
from hbtvm.graph.trees.reference import leaves
from tests.feeds import feed_matrix

ROWS, COLUMNS = 400, 4
Steps = tuple[Step, ...]

TREES: dict[str, Callable[[], Any]] = {
    "forest": lambda: ensemble.RandomForestRegressor(8, max_leaf_nodes=40, random_state=0),
    "extra": lambda: ensemble.ExtraTreesRegressor(8, max_leaf_nodes=40, random_state=0),
    "hist": lambda: ensemble.HistGradientBoostingRegressor(max_iter=8, min_samples_leaf=2),
    "lightgbm": lambda: lgb.LGBMRegressor(n_estimators=8, min_child_samples=2, n_jobs=1, verbose=-1),
    "xgboost": lambda: xgb.XGBRegressor(n_estimators=8, max_depth=5, n_jobs=1),
}


def numbers(missing: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Rows of columns of several magnitudes, and targets."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(ROWS, COLUMNS)) * [1, 1e-3, 300, 10] + [5, 0, -1e4, 30]
    X[:, 3] = np.round(np.abs(X[:, 3]))
    y = X[:, 0] + 1e3 * X[:, 1] + np.sin(X[:, 2]) + (X[:, 3] % 3)
    if missing:
        X[rng.random(X.shape) < 0.1] = np.nan
    return X, y


def marked(trees: TreeEnsemble) -> TreeEnsemble:
    """The ensemble with each node's own number as its value, by which a leaf is known after folding."""
    return replace(trees, value=np.arange(trees.n_nodes, dtype=np.float64)[:, None])


def reached(trees: TreeEnsemble, matrix: np.ndarray) -> np.ndarray:
    """The marks of the leaves that rows reach, shape (n, T)."""
    return trees.value[leaves(trees, matrix) + trees.offset[:-1], 0]


def folded(model: Any, columns: Sequence[Column], sparse: bool = False) -> Folded:
    """Fold a fitted model's trees behind columns."""
    graph = from_object(model)
    assert isinstance(graph.anchor, TreeEnsemble)
    spec = graph.input
    return fold(Table(tuple(columns), sparse), marked(graph.anchor), None, spec.allow_nan, spec.allow_inf)


def library_leaves(model: Any, matrix: np.ndarray) -> np.ndarray:
    """The leaves that the library itself says, by whatever numbers, shape (n, T)."""
    if isinstance(model, lgb.LGBMRegressor):
        return np.asarray(model.predict(matrix, pred_leaf=True))
    if isinstance(model, ensemble.HistGradientBoostingRegressor):
        graph = from_object(model)
        return leaves(graph.anchor, matrix)
    return np.asarray(model.apply(matrix))


def assert_same_leaves(model: Any, got: np.ndarray, matrix: Any) -> None:
    """Check that marks and the library's leaves of the same rows stand for each other, tree by tree."""
    dense = matrix.toarray() if hasattr(matrix, "toarray") and not isinstance(model, xgb.XGBModel) else matrix
    expected = library_leaves(model, dense).reshape(got.shape)
    for ours, theirs in zip(got.T, expected.T, strict=True):
        pairs = np.unique(np.stack([ours, theirs]), axis=1).shape[1]
        assert pairs == len(np.unique(ours)) == len(np.unique(theirs))


def edges(trees: TreeEnsemble, result: Folded, X: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Rows whose values are raw thresholds, or up to two floats beside them."""
    rows = rng.choice(X.ravel(), (600, X.shape[1])).astype(X.dtype)
    for at, feed in enumerate(result.feeds.feeds):
        assert isinstance(feed.source, Raw)
        rows[:, feed.source.index] = rng.choice(X[:, feed.source.index], len(rows))
        thresholds = trees.threshold[(trees.feature == at) & np.isfinite(trees.threshold)]
        if len(thresholds) and not any(isinstance(step, Arithmetic) for step in feed.steps):
            rows[:, feed.source.index] = rng.choice(thresholds, len(rows))
    for _ in range(2):
        away = rng.choice([-np.inf, 0, np.inf], rows.shape).astype(rows.dtype)
        rows = np.where(away == 0, rows, np.nextafter(rows, away))
    return rows


def check(
    model: Any,
    columns: Sequence[Column],
    X: np.ndarray,
    transform: Callable[[np.ndarray], Any],
    special: Sequence[float] = (),
) -> Folded:
    """Compare leaves for float64 and float32 rows: the given ones, edges, and some with special values."""
    result = folded(model, columns)
    rng = np.random.default_rng(1)
    for dtype in ("float64", "float32"):
        trees = result.single if dtype == "float32" and result.single is not None else result.anchor
        rows = np.concatenate([X.astype(dtype), edges(trees, result, X.astype(dtype), rng)])
        if special:
            odd = rng.choice(rows.ravel(), (300, X.shape[1]))
            odd[rng.random(odd.shape) < 0.4] = rng.choice(np.array(special, dtype))
            for value in special:
                odd[rng.random(odd.shape) < 0.2] = value
            rows = np.concatenate([rows, odd])
        matrix = feed_matrix(result.feeds.feeds, rows.T, trees.compare_dtype)
        behind = np.asarray(transform(rows))
        assert_same_leaves(model, reached(trees, matrix), behind)
        if dtype == "float64" and result.scaled is not None:
            computed = result.scaled.prologue.reference(matrix)
            assert_same_leaves(model, reached(result.scaled.ensemble, computed), behind)
    return result


def standard(one: Any, j: int) -> Steps:
    """Steps of a StandardScaler's column."""
    return Arithmetic("subtract", one.mean_[j], True), Arithmetic("divide", one.scale_[j], True)


WORDS = np.array(["red", "green", "blue", "black", "white", "grey"], object)


def words(n: int = 500) -> tuple[np.ndarray, np.ndarray]:
    """Rows of strings in three columns, and targets."""
    rng = np.random.default_rng(5)
    X = WORDS[rng.integers(0, [6, 4, 2], (n, 3))]
    y = (X[:, 0] == "blue") * 2.0 + (X[:, 1] == "red") + (X[:, 2] == "red") * (X[:, 0] == "red") * 3
    return X, y + 0.1 * rng.normal(size=n)
