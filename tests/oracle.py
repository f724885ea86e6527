"""Edge-case rows for trees, and comparisons of a graph with its library.

A graph is evaluated by `hbtvm.graph.trees.reference` and its `OutputSpec`, without compiled kernels.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import xgboost as xgb

from hbtvm.graph.graph import Graph
from hbtvm.graph.trees import reference
from tests.models import N_CATEGORIES, data

_CATEGORIES = (*range(N_CATEGORIES + 4), -1, -0.5, -0.0, 0.7, 2.5, 11.99, 31, 32, 255, 256, 1000, 1e9, 1e20)


def edge_rows(
    graph: Graph,
    dtype: str,
    *,
    n: int = 300,
    nan: bool | None = None,
    inf: bool | None = None,
    seed: int = 3,
) -> np.ndarray:
    """Return rows of thresholds and their neighbours, zeros of both signs, tiny, huge, NaN, infinite values.

    Parameters
    ----------
    nan, inf
        Whether these occur; as the model accepts them if not given.

    Returns
    -------
    `dtype`, shape (n, features).
    """
    nan = graph.input.allow_nan if nan is None else nan
    inf = graph.input.allow_inf if inf is None else inf
    forest = graph.anchor
    rng = np.random.default_rng(seed)
    numeric = ~forest.is_leaf() & (forest.category_set < 0)
    limit = np.finfo(np.float32).max
    out = np.empty((n, forest.n_features), dtype)
    for column in range(forest.n_features):
        cut = np.unique(forest.threshold[numeric & (forest.feature == column)])
        cut = np.concatenate([cut, np.clip(cut, -limit, limit).astype(np.float32)])
        cut = cut[np.abs(cut) < limit].astype(dtype)
        # All neighbours in float32 too, where XGBoost and scikit-learn compare.
        single = np.clip(cut, -limit, limit).astype(np.float32)
        near = [np.nextafter(cut, cut.dtype.type(side)) for side in (-np.inf, np.inf)]
        near += [np.nextafter(single, np.float32(side)).astype(dtype) for side in (-1e30, 1e30)]
        known = data()[0][:, column % 4] if forest.n_features == 4 else rng.normal(size=50)
        special = [0.0, -0.0, 1e-35, -1e-35, 1.1e-35, 1e-36, -1e-36, 1e-45, 1e30, -1e30]
        # Too small for float32, where they become zero.
        special += [1e-60, -1e-60]
        if graph.input.missing_value is not None:
            special += [graph.input.missing_value] * 4
        special += [np.nan] * 4 * nan
        # scikit-learn takes infinite numbers, but no infinite categories.
        special += [np.inf, -np.inf] * (inf and column not in graph.input.categories)
        categories = forest.category_set[forest.feature == column].max(initial=-1) >= 0
        parts = [known.astype(dtype), *[np.concatenate([cut, *near])] * bool(len(cut))]
        parts.append(np.array(special, dtype))
        if categories:
            parts = [np.array([*_CATEGORIES, *special], dtype)]
        chosen = rng.integers(0, len(parts), n)
        for kind, values in enumerate(parts):
            here = np.flatnonzero(chosen == kind)
            out[here, column] = rng.choice(values, len(here))
    return out


def encoded(graph: Graph, X: np.ndarray) -> np.ndarray:
    """Return rows as the runtime converts them: missing values to NaN, categories to their codes."""
    spec = graph.input
    X = X.copy()
    if spec.missing_value is not None:
        X[X.astype(np.float32) == np.float32(spec.missing_value)] = np.nan
    if spec.numbers_are_categories:
        for column, values in spec.categories.items():
            codes = {value: code for code, value in enumerate(values)}
            X[:, column] = [codes.get(value, np.nan) for value in X[:, column].tolist()]
    return X


def assert_close(found: Any, expected: Any, exact: bool = True) -> None:
    """Check for the same type, shape, and values to 1e-12 (`exact`) or 1e-5; labels have to be equal."""
    if isinstance(expected, list):
        assert isinstance(found, list)
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_close(one, other, exact)
        return
    assert found.dtype == expected.dtype
    assert found.shape == expected.shape
    if expected.dtype.kind == "f":
        rtol, atol = (1e-12, 1e-13) if exact else (1e-5, 2e-6)
        np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol)
    else:
        np.testing.assert_array_equal(found, expected)


def margins(graph: Graph, X: np.ndarray) -> np.ndarray:
    """Return raw scores of rows as a user gives them."""
    return reference.margins(graph.anchor, encoded(graph, X))


def assert_same_as_library(model: Any, graph: Graph, X: np.ndarray) -> None:
    """Compare all methods of a scikit-learn-like estimator on the same rows."""
    exact = graph.library != "xgboost"
    raw = margins(graph, X)
    output = graph.output
    assert_close(output.compute(None, raw), model.predict(X), exact)
    for name, method in {
        "proba": "predict_proba",
        "decision": "decision_function",
        "score": "score_samples",
    }.items():
        if name in output.outputs:
            ours = output.compute(name, raw)
            assert_close(ours, getattr(model, method)(X), exact)
        else:
            assert not hasattr(model, method) or graph.output.kind == "booster", method


def assert_same_leaves(graph: Graph, X: np.ndarray, theirs: np.ndarray) -> None:
    """Check that leaves correspond one to one with the library's own numbers of leaves, shape (n, T)."""
    ours = reference.leaves(graph.anchor, encoded(graph, X))
    theirs = np.asarray(theirs).reshape(ours.shape).astype(np.int64)
    for tree in range(ours.shape[1]):
        pairs = np.unique(np.stack([ours[:, tree], theirs[:, tree]]), axis=1)
        assert len(np.unique(pairs[0])) == len(np.unique(pairs[1])) == pairs.shape[1], f"tree {tree}"


def assert_same_as_booster(booster: xgb.Booster, graph: Graph, rows: np.ndarray) -> None:
    """Compare a booster's three kinds of prediction. XGBoost's matrices take no infinite values."""
    matrix = xgb.DMatrix(rows, feature_types=booster.feature_types, enable_categorical=True)
    raw = margins(graph, rows)
    assert_close(graph.output.compute(None, raw), booster.predict(matrix), False)
    assert_close(graph.output.compute("raw", raw), booster.predict(matrix, output_margin=True), False)
    assert_same_leaves(graph, rows, booster.predict(matrix, pred_leaf=True))
