"""Covers and numbers of leaves, against treelite, YDF, and libraries around trees of scikit-learn."""

from __future__ import annotations

import json
from typing import Any

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from sklearn.ensemble import RandomForestClassifier

from hbtvm.frontends import from_object
from tests.by_reference import leaf_numbers, matrix
from tests.covers import assert_sums, leaf_covers
from tests.models import data, targets

X, Y = data()


def _nodes(model: Any) -> list[list[dict[str, Any]]]:
    return [tree["nodes"] for tree in json.loads(model.dump_as_json())["trees"]]


def _check(model: Any, name: str, rows: np.ndarray) -> None:
    """Compare with a model of treelite's, whose `predict_leaf` returns numbers of nodes."""
    trees = from_object(model).anchor
    expected = [node[name] for tree in _nodes(model) for node in tree]
    np.testing.assert_allclose(trees.cover, expected, rtol=1e-6)
    found = leaf_numbers(trees, rows.astype(trees.compare_dtype))
    np.testing.assert_array_equal(
        found, pytest.importorskip("treelite").gtil.predict_leaf(model, rows.astype(model.input_type))
    )


def test_forests_in_treelite() -> None:
    treelite = pytest.importorskip("treelite")
    forest = RandomForestClassifier(3, max_depth=4, random_state=0).fit(X, targets("three"))
    _check(treelite.sklearn.import_model(forest), "sum_hess", X)


def test_boosters_in_treelite() -> None:
    treelite = pytest.importorskip("treelite")
    rows = data(missing=True)[0]
    booster = xgb.train({"nthread": 1, "max_depth": 4}, xgb.DMatrix(rows, Y), 3)
    _check(treelite.frontend.from_xgboost(booster), "sum_hess", rows)
    options = {"verbose": -1, "num_threads": 1, "num_leaves": 7}
    model = treelite.frontend.from_lightgbm(lgb.train(options, lgb.Dataset(rows, Y), 3))
    known = _nodes(model)[0][0]
    _check(model, "sum_hess" if "sum_hess" in known else "data_count", rows)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["boosted", "forest", "cart"])
def test_ydf(kind: str) -> None:
    ydf = pytest.importorskip("ydf")
    ydf.verbose(0)
    frame = pd.DataFrame({f"x{i}": data(missing=True)[0][:, i] for i in (0, 1, 3)})
    frame["c"] = [f"c{int(c)}" for c in X[:, 2]]
    frame["w"] = np.random.default_rng(0).integers(1, 4, len(X)).astype(np.float32)
    frame["y"] = targets("names")
    learners = {
        "boosted": lambda: ydf.GradientBoostedTreesLearner(label="y", weights="w", num_trees=5),
        "forest": lambda: ydf.RandomForestLearner(label="y", weights="w", num_trees=5),
        "cart": lambda: ydf.CartLearner(label="y", weights="w"),
    }
    model = learners[kind]().train(frame)
    graph = from_object(model)
    trees = graph.anchor
    found = leaf_numbers(trees, matrix(graph, frame[model.input_feature_names()]))
    np.testing.assert_array_equal(found, model.predict_leaves(frame))
    assert_sums(trees)
    if kind == "boosted":
        # Its trees have a part of the rows, and leaves that state no numbers of rows.
        assert 0 < trees.cover[0] < frame["w"].sum()
        return
    for tree in range(trees.n_trees):
        weights = [leaf.value.num_examples for leaf in _leaves(model.get_tree(tree).root)]
        np.testing.assert_allclose(leaf_covers(trees, tree), weights, rtol=1e-6)


def _leaves(node: Any) -> list[Any]:
    """Return YDF's leaves, the negative children first."""
    if not hasattr(node, "condition"):
        return [node]
    return [*_leaves(node.neg_child), *_leaves(node.pos_child)]


FOREIGN = {
    "quantile forest": ("quantile_forest", "RandomForestQuantileRegressor", {"default_quantiles": None}),
    "survival forest": ("sksurv.ensemble", "RandomSurvivalForest", {}),
    "survival boosting": ("sksurv.ensemble", "GradientBoostingSurvivalAnalysis", {}),
    "ngboost": ("ngboost", "NGBRegressor", {"verbose": False}),
    "pyod": ("pyod.models.iforest", "IForest", {}),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FOREIGN)
def test_trees_of_scikit_learn_in_others(name: str) -> None:
    module, kind, options = FOREIGN[name]
    library = pytest.importorskip(module)
    model = getattr(library, kind)(n_estimators=4, random_state=0, **options)
    y: Any = Y
    if name.startswith("survival"):
        y = np.array([(i % 3 > 0, abs(v) + 0.1) for i, v in enumerate(Y)], [("event", bool), ("time", float)])
    model.fit(X, y) if name != "pyod" else model.fit(X)
    members = model.base_models if name == "ngboost" else getattr(model, "detector_", model).estimators_
    members = np.ravel(np.array(members, object)).tolist()
    trees = from_object(model).anchor
    expected = [tree.tree_.weighted_n_node_samples for tree in members]
    np.testing.assert_array_equal(trees.cover, np.concatenate(expected))
    rows = X.astype(np.float32)
    found = leaf_numbers(trees, rows)
    np.testing.assert_array_equal(found, np.stack([tree.tree_.apply(rows) for tree in members], axis=1))


def test_models_without() -> None:
    pytest.importorskip("pyod")
    from pyod.models.hbos import HBOS

    trees = from_object(HBOS().fit(X)).anchor
    assert trees.cover is None and trees.leaf_id is None
