"""scikit-learn models against scikit-learn itself."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import ensemble, tree
from sklearn.decomposition import DictionaryLearning
from sklearn.dummy import DummyClassifier, DummyRegressor
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from hbtvm.errors import UnsupportedModel
from hbtvm.frontends import from_object
from hbtvm.graph.trees import reference
from tests.models import CATEGORY_COLUMN, ZOO, data, targets
from tests.oracle import (
    assert_close,
    assert_same_as_library,
    assert_same_leaves,
    edge_rows,
    margins,
)

MODELS = [name for name in ZOO if name.startswith("sk_")]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", MODELS)
def test_predicts_as_scikit_learn(name: str, dtype: str) -> None:
    model = ZOO[name]()
    graph = from_object(model)
    X = edge_rows(graph, dtype)
    assert_same_as_library(model, graph, X)
    assert_same_as_library(model, graph, X[:1])
    assert (graph.library, graph.model) == ("scikit-learn", type(model).__name__)
    if hasattr(model, "apply"):
        assert_same_leaves(graph, X, model.apply(X))


@pytest.mark.parametrize("name", ["sk_isolation_nan", "sk_isolation_some"])
def test_isolation_forest_ends_in_the_same_leaves(name: str) -> None:
    model = ZOO[name]()
    graph = from_object(model)
    X = edge_rows(graph, "float32")
    columns = model.estimators_features_
    theirs = [e.apply(X[:, c], check_input=False) for e, c in zip(model.estimators_, columns, strict=True)]
    assert_same_leaves(graph, X, np.stack(theirs, axis=1))


@settings(derandomize=True, deadline=None, max_examples=60)
@given(row=st.lists(st.floats(width=64), min_size=4, max_size=4))
def test_any_row_through_a_model_with_missing_values(row: list[float]) -> None:
    X = np.array([row])
    model = _hist()
    assert_same_as_library(model, from_object(model), X)
    model = ZOO["sk_isolation_nan"]()
    with np.errstate(over="ignore"):
        assert_same_as_library(model, from_object(model), X)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(row=st.lists(st.floats(width=32, allow_infinity=False), min_size=4, max_size=4))
def test_any_float32_row_through_a_forest(row: list[float]) -> None:
    model = ZOO["sk_forest_three_nan"]()
    assert_same_as_library(model, from_object(model), np.array([row], np.float32))


@functools.cache
def _hist() -> Any:
    return ZOO["sk_hist_two_nan"]()


def test_random_small_trees_have_every_threshold_exact() -> None:
    """Thresholds lie between float32 neighbours here, so each rounding shows."""
    base = np.float32(1.0)
    rows = [base]
    for _ in range(30):
        rows.append(np.nextafter(rows[-1], np.float32(2)))
    X = np.array(rows, np.float32)[:, None]
    y = np.arange(len(rows)) % 3
    for kind in (tree.DecisionTreeClassifier, tree.ExtraTreeClassifier):
        model = kind(random_state=0).fit(X, y)
        graph = from_object(model)
        between = (X.astype(np.float64)[:-1] + X[1:]) / 2
        for rows_ in (X, between, between + 1e-12, between - 1e-12):
            assert_same_as_library(model, graph, rows_)
            assert_same_leaves(graph, rows_, model.apply(rows_))


def test_forest_without_missing_values_in_training_takes_none_later() -> None:
    graph = from_object(ZOO["sk_boost_two"]())
    assert not graph.input.allow_nan
    assert not graph.input.allow_inf
    graph = from_object(ZOO["sk_hist_three"]())
    assert graph.input.allow_nan
    assert graph.input.allow_inf


@pytest.mark.parametrize(
    "kind", ["tree", "extra_tree", "forest", "extra_forest", "boost", "hist", "isolation"]
)
def test_accepts_nan_and_inf_where_scikit_learn_does(kind: str) -> None:
    suffix = {"boost": "two", "hist": "three", "isolation": "some"}.get(kind, "two")
    for name in (f"sk_{kind}_{suffix}", f"sk_{kind}_real_nan", f"sk_{kind}_three_nan"):
        if name not in ZOO:
            continue
        model = ZOO[name]()
        graph = from_object(model)
        for value, allowed in ((np.nan, graph.input.allow_nan), (np.inf, graph.input.allow_inf)):
            X = np.array(data()[0][:2])
            X[0, 0] = value
            try:
                model.predict(X)
            except ValueError:
                assert not allowed, (name, value)
            else:
                assert allowed, (name, value)


X, Y = data()
VARIANTS: dict[str, Any] = {
    "one class": lambda: tree.DecisionTreeClassifier().fit(X, np.full(len(X), "only")),
    "forest of one class": lambda: ensemble.RandomForestClassifier(3).fit(X, np.ones(len(X))),
    "bool labels": lambda: ensemble.RandomForestClassifier(3, random_state=0).fit(X, Y > 1),
    "float labels": lambda: tree.DecisionTreeClassifier(max_depth=2).fit(X, targets("floats")),
    "pairs of numbers": lambda: ensemble.ExtraTreesClassifier(3, max_depth=3, random_state=0).fit(
        X, np.column_stack([targets("three"), targets("two")])
    ),
    "one column of labels": lambda: tree.DecisionTreeClassifier(max_depth=3).fit(X, targets("two")[:, None]),
    "best first": lambda: tree.DecisionTreeRegressor(max_leaf_nodes=7).fit(X, Y),
    "pruned": lambda: tree.DecisionTreeRegressor(ccp_alpha=0.01).fit(X, Y),
    "full depth": lambda: ensemble.RandomForestClassifier(5, random_state=0).fit(X, targets("names")),
    "poisson": lambda: ensemble.RandomForestRegressor(
        3, criterion="poisson", max_depth=3, random_state=0
    ).fit(X, targets("positive")),
    "weighted classes": lambda: ensemble.RandomForestClassifier(
        3, class_weight="balanced", max_depth=3, random_state=0
    ).fit(X, targets("two")),
    "monotone": lambda: ensemble.RandomForestClassifier(
        3, monotonic_cst=[1, 0, 0, -1], max_depth=3, random_state=0
    ).fit(X, targets("two")),
    "boost stopped early": lambda: ensemble.GradientBoostingClassifier(
        n_estimators=60, n_iter_no_change=2, random_state=0
    ).fit(X, targets("three")),
    "boost from a constant": lambda: ensemble.GradientBoostingRegressor(
        n_estimators=3, init=DummyRegressor(strategy="quantile", quantile=0.7)
    ).fit(X, Y),
    "boost from the prior": lambda: ensemble.GradientBoostingClassifier(
        n_estimators=3, init=DummyClassifier(strategy="prior")
    ).fit(X, targets("yes_no")),
    "boosted stumps": lambda: ensemble.GradientBoostingClassifier(n_estimators=4, max_depth=1).fit(
        X, targets("three")
    ),
    "boosted leaves": lambda: ensemble.GradientBoostingRegressor(n_estimators=4, min_samples_leaf=200).fit(
        X, Y
    ),
    "stochastic boost": lambda: ensemble.GradientBoostingRegressor(
        n_estimators=4, subsample=0.5, max_features=2, random_state=0
    ).fit(X, Y),
    "hist stopped early": lambda: ensemble.HistGradientBoostingClassifier(
        max_iter=50, early_stopping=True, n_iter_no_change=2, random_state=0
    ).fit(X, targets("two")),
    "hist leaves": lambda: ensemble.HistGradientBoostingRegressor(max_iter=3, min_samples_leaf=200).fit(X, Y),
    "hist monotone": lambda: ensemble.HistGradientBoostingRegressor(
        max_iter=4, monotonic_cst=[1, 0, 0, -1]
    ).fit(X, Y),
    "hist bools": lambda: ensemble.HistGradientBoostingClassifier(max_iter=3).fit(X, Y > 1),
    "isolation of all columns": lambda: ensemble.IsolationForest(
        n_estimators=5, max_features=4, max_samples=17, contamination=0.3, random_state=3
    ).fit(X),
    "isolation with replacement": lambda: ensemble.IsolationForest(
        n_estimators=4, bootstrap=True, random_state=3
    ).fit(X),
    "isolation of one row": lambda: ensemble.IsolationForest(n_estimators=3, random_state=0).fit(X[:1]),
}


@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.filterwarnings("ignore")
def test_variants(name: str) -> None:
    model = VARIANTS[name]()
    graph = from_object(model)
    for dtype in ("float32", "float64"):
        assert_same_as_library(model, graph, edge_rows(graph, dtype))
    # The rows of the training decide about the threshold of an isolation forest.
    assert_same_as_library(model, graph, X)


def _frame() -> pd.DataFrame:
    colours = np.array(["red", "green", "blue", "grey"])
    frame = pd.DataFrame(np.array(X[:, :3]), columns=["a", "b", "c"])
    frame["colour"] = pd.Categorical(colours[np.arange(len(X)) % 4])
    frame.loc[::9, "colour"] = None
    return frame


def test_hist_with_categories_of_a_data_frame() -> None:
    frame = _frame()
    y = Y + (frame["colour"] == "red") * 3
    model = ensemble.HistGradientBoostingRegressor(
        max_iter=4, min_samples_leaf=3, categorical_features="from_dtype"
    ).fit(frame, y)
    graph = from_object(model)
    assert graph.input.feature_names == ("a", "b", "c", "colour")
    assert graph.input.categories == {3: ("blue", "green", "grey", "red")}
    assert graph.input.unknown_category == "missing"
    assert graph.anchor.category_sets
    later = frame.assign(colour=["red", "pink", None, "blue"] * 60)
    codes = {colour: code for code, colour in enumerate(graph.input.categories[3])}
    rows = later.assign(colour=[codes.get(c, np.nan) for c in later["colour"]]).to_numpy(np.float64)
    raw = reference.margins(graph.anchor, rows)
    assert_close(graph.output.compute(None, raw), model.predict(later.astype({"colour": "category"})))


def test_hist_moves_categorical_columns_back() -> None:
    """scikit-learn puts them first; ours are the user's column numbers."""
    model = ZOO["sk_hist_real_cat"]()
    graph = from_object(model)
    categorical = graph.anchor.category_set >= 0
    assert set(graph.anchor.feature[categorical]) == {CATEGORY_COLUMN}
    assert list(graph.input.categories) == [CATEGORY_COLUMN]


REFUSED: dict[str, tuple[Any, str]] = {
    "pipeline": (
        lambda: make_pipeline(DictionaryLearning(2, max_iter=2), tree.DecisionTreeRegressor()).fit(X, Y),
        r"step 'dictionarylearning' is a DictionaryLearning \(sklearn\), which is not supported: it iterates",
    ),
    "init": (
        lambda: ensemble.GradientBoostingClassifier(
            n_estimators=2, init=LogisticRegression(max_iter=500)
        ).fit(X, targets("two")),
        "starts from a LogisticRegression",
    ),
    "random init": (
        lambda: ensemble.GradientBoostingClassifier(
            n_estimators=2, init=DummyClassifier(strategy="stratified")
        ).fit(X, targets("two")),
        "starts from a DummyClassifier",
    ),
    "bytes": (
        lambda: tree.DecisionTreeClassifier().fit(X, targets("names").astype("S")),
        "class label is a bytes",
    ),
    "a list": (lambda: [1, 2], "a list"),
    "a class": (lambda: tree.DecisionTreeClassifier, "the class DecisionTreeClassifier"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name(name: str) -> None:
    make, text = REFUSED[name]
    with pytest.raises(UnsupportedModel, match=text) as caught:
        from_object(make())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", MODELS)
def test_a_model_that_is_not_fitted_is_refused(name: str) -> None:
    kind = type(ZOO[name]())
    with pytest.raises(UnsupportedModel, match=f"the {kind.__name__} is not fitted"):
        from_object(kind())


def test_a_class_of_the_users_own_is_refused() -> None:
    class Mine(tree.DecisionTreeRegressor):
        pass

    with pytest.raises(UnsupportedModel, match="a Mine"):
        from_object(Mine().fit(X, Y))


def test_single_leaf_and_stump() -> None:
    flat = from_object(ZOO["sk_flat"]())
    assert flat.anchor.n_nodes == 1
    np.testing.assert_allclose(margins(flat, X), Y.mean(), rtol=1e-12)
    assert from_object(ZOO["sk_stump"]()).anchor.max_depth() == 1
