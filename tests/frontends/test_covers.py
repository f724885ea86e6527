"""Covers and numbers of leaves, against those of scikit-learn, XGBoost and LightGBM."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from numpy.lib.recfunctions import append_fields
from sklearn import ensemble
from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from hbtvm.frontends import from_object
from hbtvm.frontends.build import assemble
from hbtvm.frontends.lightgbm import model as lightgbm_model
from hbtvm.frontends.sklearn.common import tree_of
from hbtvm.frontends.xgboost import model as xgboost_model
from hbtvm.graph.graph import Graph
from hbtvm.graph.networks.network import Trees
from hbtvm.graph.trees import reference
from hbtvm.graph.trees.ensemble import TreeEnsemble
from hbtvm.operators.base import Input, in_order
from tests.by_reference import leaf_numbers
from tests.feeds import feed_matrix
from tests.folded_trees import TREES, numbers
from tests.models import CATEGORY_COLUMN, ZOO, data, targets
from tests.oracle import edge_rows, encoded

Counts = dict[int, int]


def _assert_covers(trees: TreeEnsemble, expected: Sequence[np.ndarray]) -> None:
    """Compare covers with those of each tree's nodes, of which the front end dropped none."""
    assert trees.cover is not None and trees.cover.dtype == np.float64
    np.testing.assert_array_equal(trees.cover, np.concatenate(expected))
    assert len(expected) == trees.n_trees


def _assert_leaves(graph: Graph, theirs: Callable[[np.ndarray], np.ndarray], **options: Any) -> None:
    for dtype in ("float32", "float64"):
        rows = edge_rows(graph, dtype, **options)
        found = leaf_numbers(graph.anchor, encoded(graph, rows))
        np.testing.assert_array_equal(found, np.asarray(theirs(rows)).reshape(found.shape))


@pytest.mark.parametrize("name", [name for name in ZOO if name.startswith("sk_") and "hist" not in name])
def test_scikit_learn(name: str) -> None:
    model = ZOO[name]()
    trees = np.ravel(getattr(model, "estimators_", [model])).tolist()
    graph = from_object(model)
    _assert_covers(graph.anchor, [tree.tree_.weighted_n_node_samples for tree in trees])
    if "isolation" not in name:
        _assert_leaves(graph, model.apply)
        return
    columns = model.estimators_features_

    def leaves(rows: np.ndarray) -> np.ndarray:
        narrow = rows.astype(np.float32)
        return np.stack(
            [tree.tree_.apply(narrow[:, used]) for tree, used in zip(trees, columns, strict=True)], axis=1
        )

    _assert_leaves(graph, leaves, inf=False)


def test_weights_of_rows() -> None:
    X, y = data()
    weights = np.random.default_rng(0).random(len(X))
    model = ensemble.ExtraTreesRegressor(5, max_depth=4, random_state=0).fit(X, y, sample_weight=weights)
    anchor = from_object(model).anchor
    _assert_covers(anchor, [tree.tree_.weighted_n_node_samples for tree in model.estimators_])
    assert anchor.cover[0] == pytest.approx(weights.sum())


@pytest.mark.parametrize("name", [name for name in ZOO if name.startswith("sk_hist")])
def test_hist_gradient_boosting(name: str) -> None:
    model = ZOO[name]()
    graph = from_object(model)
    nodes = [tree.nodes for stage in model._predictors for tree in stage]
    _assert_covers(graph.anchor, [part["count"].astype(np.float64) for part in nodes])
    # The library numbers nodes, and has no method for the leaves of rows: its values tell them.
    rows = encoded(graph, edge_rows(graph, "float64"))
    numbers = leaf_numbers(graph.anchor, rows)
    values = np.stack([part["value"][numbers[:, t]] for t, part in enumerate(nodes)], axis=1)
    at = reference.leaves(graph.anchor, rows) + graph.anchor.offset[:-1]
    np.testing.assert_array_equal(values, graph.anchor.value[at, 0])
    assert all(part["is_leaf"][numbers[:, t]].all() for t, part in enumerate(nodes))


def _hessians(booster: xgb.Booster, trees: int) -> list[np.ndarray]:
    """Return the sums of Hessians of all nodes that are reachable, in the order of their numbers."""
    document = json.loads(booster.save_raw("json"))
    tables = document["learner"]["gradient_booster"]
    tables = tables.get("gbtree", tables)["model"]["trees"][:trees]
    result = []
    for tree in tables:
        left, right = tree["left_children"], tree["right_children"]
        kept = [0]
        for node in kept:  # grows
            kept += [left[node], right[node]] if left[node] >= 0 else []
        result.append(np.array(tree["sum_hessian"], np.float32)[np.sort(kept)])
    return result


@pytest.mark.parametrize("name", [name for name in ZOO if name.startswith("xgb_")])
def test_xgboost(name: str) -> None:
    model = ZOO[name]()
    graph = from_object(model)
    booster = model if isinstance(model, xgb.Booster) else model.get_booster()
    _assert_covers(graph.anchor, _hessians(booster, graph.anchor.n_trees))

    def leaves(rows: np.ndarray) -> np.ndarray:
        if not isinstance(model, xgb.Booster):
            return model.apply(rows)
        matrix = xgb.DMatrix(rows, feature_types=booster.feature_types, enable_categorical=True)
        return booster.predict(matrix, pred_leaf=True)

    _assert_leaves(graph, leaves, inf=False)


def test_xgboost_as_a_frame_tells_covers() -> None:
    booster = ZOO["xgb_parallel"]()
    frame = booster.trees_to_dataframe()
    anchor = from_object(booster).anchor
    for tree, rows in frame.groupby("Tree"):
        span = slice(*anchor.offset[tree : tree + 2])
        np.testing.assert_allclose(anchor.cover[span], rows.sort_values("Node")["Cover"], rtol=1e-6)


def test_xgboost_stops_early() -> None:
    X, y = data()
    model = xgb.XGBRegressor(n_estimators=60, learning_rate=0.9, early_stopping_rounds=2, n_jobs=1)
    model.fit(X[:120], y[:120], eval_set=[(X[120:], y[120:])], verbose=False)
    graph = from_object(model)
    assert graph.anchor.n_trees < len(model.get_booster().get_dump())
    _assert_covers(graph.anchor, _hessians(model.get_booster(), graph.anchor.n_trees))
    _assert_leaves(graph, model.apply, inf=False)


def test_xgboost_leaves_pruned_nodes_behind() -> None:
    X, y = data()
    model = xgb.XGBRegressor(n_estimators=3, gamma=2.0, tree_method="exact", max_depth=5, n_jobs=1)
    graph = from_object(model.fit(X, y))
    stored = json.loads(model.get_booster().save_raw("json"))
    sizes = [len(tree["left_children"]) for tree in stored["learner"]["gradient_booster"]["model"]["trees"]]
    # The numbers of nodes have gaps.
    assert graph.anchor.n_nodes < sum(sizes)
    _assert_covers(graph.anchor, _hessians(model.get_booster(), 3))
    _assert_leaves(graph, model.apply, inf=False)


def _counts(tree: dict[str, Any]) -> tuple[Counts, Counts]:
    """Return counts of rows by number of split, and by number of leaf."""
    splits: Counts = {}
    leaves: Counts = {}
    nodes = [tree["tree_structure"]]
    for node in nodes:  # grows
        if "split_index" in node:
            splits[node["split_index"]] = node["internal_count"]
            nodes += [node["left_child"], node["right_child"]]
        else:
            leaves[node.get("leaf_index", 0)] = node["leaf_count"]
    return splits, leaves


def _lightgbm_covers(booster: lgb.Booster) -> list[np.ndarray]:
    counts = [_counts(tree) for tree in booster.dump_model()["tree_info"]]
    return [
        np.array([part[i] for part in (splits, leaves) for i in range(len(part))])
        for splits, leaves in counts
    ]


@pytest.mark.parametrize("name", [name for name in ZOO if name.startswith("lgb_")])
def test_lightgbm(name: str) -> None:
    model = ZOO[name]()
    graph = from_object(model)
    _assert_covers(graph.anchor, _lightgbm_covers(model.booster_))
    _assert_leaves(graph, lambda rows: model.predict(rows, pred_leaf=True))


@pytest.mark.filterwarnings("ignore:.*eval_set.*")
def test_lightgbm_stops_early() -> None:
    X, y = data()
    model = lgb.LGBMRegressor(n_estimators=60, learning_rate=0.9, num_leaves=6, verbose=-1, n_jobs=1)
    stop = lgb.early_stopping(2, verbose=False)
    model.fit(X[:120], y[:120], eval_set=[(X[120:], y[120:])], callbacks=[stop])
    graph = from_object(model)
    assert graph.anchor.n_trees == model.best_iteration_ < 60
    _assert_covers(graph.anchor, _lightgbm_covers(model.booster_))
    _assert_leaves(graph, lambda rows: model.predict(rows, pred_leaf=True))


def test_constant_trees_of_lightgbm_stay() -> None:
    X, y = data()
    parameters = {"verbose": -1, "min_data_in_leaf": 200, "num_threads": 1}
    booster = lgb.train(parameters, lgb.Dataset(X, y), 2)
    graph = from_object(booster)
    _assert_covers(graph.anchor, [np.array([len(X)])] * booster.num_trees())
    np.testing.assert_array_equal(leaf_numbers(graph.anchor, X), booster.predict(X, pred_leaf=True))


def test_linear_trees_of_lightgbm() -> None:
    X, y = data(missing=True)
    parameters = {"linear_tree": True, "verbose": -1, "num_threads": 1, "num_leaves": 6}
    booster = lgb.train(parameters, lgb.Dataset(X, y), 4)
    graph = from_object(booster)
    assert graph.scores_of is not None
    nodes = in_order(graph.scores_of(Input(X.shape[1])))
    (trees,) = (node.ensemble for node in nodes if isinstance(node, Trees))
    assert trees.cover is not None and trees.n_trees == booster.num_trees()
    np.testing.assert_array_equal(leaf_numbers(trees, X), booster.predict(X, pred_leaf=True))
    for tree, expected in enumerate(_lightgbm_covers(booster)):
        # Splits on missing values follow the tree's own nodes.
        start = trees.offset[tree]
        np.testing.assert_array_equal(trees.cover[start : start + len(expected)], expected)
        leaf = trees.is_leaf()[start : trees.offset[tree + 1]]
        assert trees.cover[start : trees.offset[tree + 1]][leaf].sum() == len(X)


@pytest.mark.parametrize("name", ["forest", "extra", "hist", "lightgbm", "xgboost"])
def test_folded_scalers_keep_them(name: str) -> None:
    X, y = numbers()
    scaler = StandardScaler().fit(X)
    model = TREES[name]().fit(scaler.transform(X), y)
    graph, alone = from_object(make_pipeline(scaler, model)), from_object(model).anchor
    for trees in (graph.anchor, graph.single):
        assert trees is not None
        np.testing.assert_array_equal(trees.cover, alone.cover)
        np.testing.assert_array_equal(trees.leaf_id, alone.leaf_id)
    rows = feed_matrix(graph.feeds, X.T, "float64")
    found = reference.leaves(graph.anchor, rows) + graph.anchor.offset[:-1]
    expected = reference.leaves(alone, scaler.transform(X)) + alone.offset[:-1]
    np.testing.assert_array_equal(graph.anchor.leaf_id[found], alone.leaf_id[expected])


def test_encoders_keep_them() -> None:
    X, y = data()
    names = np.array([f"name {i}" for i in range(12)])
    frame = pd.DataFrame({f"x{i}": X[:, i] for i in (0, 1, 3)})
    frame["c"] = names[X[:, CATEGORY_COLUMN].astype(int)]
    for encoder in (OneHotEncoder(sparse_output=False), OrdinalEncoder()):
        columns = make_column_transformer((encoder, ["c"]), (StandardScaler(), ["x0", "x1", "x3"]))
        model = ensemble.RandomForestRegressor(5, max_depth=5, random_state=0)
        pipeline = make_pipeline(columns, model).fit(frame, y)
        graph = from_object(pipeline)
        _assert_covers(graph.anchor, [tree.tree_.weighted_n_node_samples for tree in model.estimators_])
        rows = feed_matrix(graph.feeds, [frame[name].to_numpy() for name in frame], "float64")
        expected = model.apply(columns.transform(frame))
        np.testing.assert_array_equal(leaf_numbers(graph.anchor, rows), expected)


BAGS: dict[str, Callable[[], Any]] = {
    "bagging": lambda: ensemble.BaggingRegressor(DecisionTreeRegressor(max_depth=4), 5, random_state=0),
    "adaboost": lambda: ensemble.AdaBoostClassifier(
        DecisionTreeClassifier(max_depth=2), n_estimators=6, random_state=0
    ),
    "adaboost of three": lambda: ensemble.AdaBoostClassifier(
        DecisionTreeClassifier(max_depth=3), n_estimators=6, random_state=0
    ),
    "columns": lambda: ensemble.BaggingClassifier(
        DecisionTreeClassifier(max_depth=4), 5, max_features=0.6, random_state=0
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAGS)
def test_merged_estimators(name: str) -> None:
    target = {"bagging": "real", "adaboost": "two", "adaboost of three": "three", "columns": "names"}[name]
    X = data()[0]
    model = BAGS[name]().fit(X, targets(target))
    graph = from_object(model)
    _assert_covers(graph.anchor, [tree.tree_.weighted_n_node_samples for tree in model.estimators_])
    used = getattr(model, "estimators_features_", [np.arange(X.shape[1])] * len(model.estimators_))
    reached = [tree.apply(X[:, part]) for tree, part in zip(model.estimators_, used, strict=True)]
    rows = feed_matrix(graph.feeds, X.T, "float64") if graph.feeds else X
    np.testing.assert_array_equal(leaf_numbers(graph.anchor, rows), np.stack(reached, axis=1))


def test_damaged_covers_do_not_refuse_a_model() -> None:
    X = data()[0]
    document = json.loads(ZOO["xgb_parallel"]().save_raw("json"))
    rows = X.astype(np.float32)
    expected = reference.margins(xgboost_model.from_document(document).anchor, rows)
    tree = document["learner"]["gradient_booster"]["model"]["trees"][1]
    sums = tree["sum_hessian"]
    for damaged in (
        sums[:-1],
        ["?"] * len(sums),
        [*sums[:-1], -1.0],
        [*sums[:-1], 1e300],
        5,
        None,
        [[1], []],
    ):
        tree["sum_hessian"] = damaged
        anchor = xgboost_model.from_document(document).anchor
        assert anchor.cover is None and anchor.leaf_id is not None
        np.testing.assert_array_equal(reference.margins(anchor, rows), expected)
    text = ZOO["lgb_two"]().booster_.model_to_string()
    assert lightgbm_model.from_text(text).anchor.cover is not None
    for damage in (
        ("leaf_count=", "leaf_count=1 "),
        ("leaf_count=", "other="),
        ("internal_count=", "internal_count=x"),
    ):
        # Lengths of trees are checked only where the text has no end.
        anchor = lightgbm_model.from_text(text.replace(*damage)).anchor
        assert anchor.cover is None and anchor.leaf_id is not None


@pytest.mark.parametrize("column", [np.full(3, "x"), np.full(3, -1.0), None])
def test_damaged_covers_of_scikit_learn(column: np.ndarray | None) -> None:
    names = ["left_child", "right_child", "feature", "threshold"]
    nodes = np.zeros(3, [(name, np.float64 if name == "threshold" else np.int64) for name in names])
    nodes["left_child"], nodes["right_child"] = [1, -1, -1], [2, -1, -1]
    if column is not None:
        nodes = append_fields(nodes, "weighted_n_node_samples", column, usemask=False)
    tree = tree_of(nodes, np.zeros((3, 1)))
    trees = assemble([tree], n_features=1, compare_dtype="float32", tree_output=[0], base_score=[0.0])
    assert trees.cover is None
    np.testing.assert_array_equal(trees.leaf_id, [0, 1, 2])
