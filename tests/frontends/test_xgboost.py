"""XGBoost models against XGBoost itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from hypothesis import given, settings
from hypothesis import strategies as st

from hbtvm import codec
from hbtvm.errors import UnsupportedModel
from hbtvm.frontends import from_object, load_model
from hbtvm.graph.graph import Graph
from hbtvm.graph.trees import reference
from tests.models import ZOO, data, targets
from tests.oracle import (
    assert_close,
    assert_same_as_booster,
    assert_same_as_library,
    assert_same_leaves,
    edge_rows,
    margins,
)

X, Y = data()
SMALL = {"n_estimators": 4, "max_depth": 3, "random_state": 1, "n_jobs": 1}
MODELS = [name for name in ZOO if name.startswith("xgb_")]


def _check_estimator(model: Any, graph: Graph, rows: np.ndarray) -> None:
    assert_same_as_library(model, graph, rows)
    raw = margins(graph, rows)
    assert_close(graph.output.compute("raw", raw), model.predict(rows, output_margin=True), False)


def _check(model: Any, **options: Any) -> Graph:
    graph = from_object(model)
    for dtype in ("float32", "float64"):
        finite = edge_rows(graph, dtype, inf=False, **options)
        if isinstance(model, xgb.Booster):
            assert_same_as_booster(model, graph, finite)
        else:
            _check_estimator(model, graph, edge_rows(graph, dtype, **options))
            _check_estimator(model, graph, finite[:1])
            assert_same_leaves(graph, finite, model.apply(finite))
    return graph


@pytest.mark.parametrize("name", MODELS)
def test_predicts_as_xgboost(name: str) -> None:
    model = ZOO[name]()
    graph = _check(model)
    assert (graph.library, graph.model) == ("xgboost", type(model).__name__)


@settings(derandomize=True, deadline=None, max_examples=60)
@given(row=st.lists(st.floats(width=64), min_size=4, max_size=4))
def test_any_row(row: list[float]) -> None:
    model = ZOO["xgb_two_nan"]()
    with np.errstate(over="ignore"):
        _check_estimator(model, from_object(model), np.array([row]))


@settings(derandomize=True, deadline=None, max_examples=60)
@given(category=st.floats(width=32, allow_infinity=False), other=st.floats(-3, 3, width=32))
def test_any_category(category: float, other: float) -> None:
    rows = np.array([[other, other, category, other]], np.float32)
    for name in ("xgb_partition_cat", "xgb_one_hot_cat"):
        booster = ZOO[name]()
        assert_same_as_booster(booster, from_object(booster), rows)


def _early() -> dict[str, Any]:
    return {**SMALL, "n_estimators": 40, "learning_rate": 1.0, "early_stopping_rounds": 3}


def _stopped(kind: Any, target: str, **options: Any) -> Any:
    y = targets(target)
    model = kind(**_early(), **options).fit(X[:150], y[:150], eval_set=[(X[150:], y[150:])], verbose=False)
    assert model.best_iteration + 1 < model.get_booster().num_boosted_rounds()
    return model


STOPPED: dict[str, Any] = {
    "two": lambda: _stopped(xgb.XGBClassifier, "two"),
    "three": lambda: _stopped(xgb.XGBClassifier, "three"),
    "real": lambda: _stopped(xgb.XGBRegressor, "real"),
    "pair": lambda: _stopped(xgb.XGBRegressor, "pair"),
    "pair_vector": lambda: _stopped(xgb.XGBRegressor, "pair", multi_strategy="multi_output_tree"),
    "dart": lambda: _stopped(xgb.XGBRegressor, "real", booster="dart", rate_drop=0.3),
    "parallel": lambda: _stopped(xgb.XGBClassifier, "three", num_parallel_tree=3, subsample=0.5),
}


@pytest.mark.parametrize("name", STOPPED)
def test_best_iteration_counts_for_estimators_alone(name: str, tmp_path: Path) -> None:
    model = STOPPED[name]()
    graph = from_object(model)
    rows = edge_rows(graph, "float32")
    _check_estimator(model, graph, rows)
    booster = model.get_booster()
    everything = from_object(booster)
    assert everything.anchor.n_trees > graph.anchor.n_trees
    assert_same_as_booster(booster, everything, edge_rows(graph, "float32", inf=False))
    for suffix in ("json", "ubj"):
        model.save_model(tmp_path / f"model.{suffix}")
        found = load_model(tmp_path / f"model.{suffix}")
        assert (found.model, found.anchor.n_trees) == (type(model).__name__, graph.anchor.n_trees)
        assert codec.write(found.output) == codec.write(graph.output)
        _check_estimator(model, found, rows)
        booster.save_model(tmp_path / f"booster.{suffix}")


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("suffix", ["json", "ubj"])
def test_saved_models_are_read_back(name: str, suffix: str, tmp_path: Path) -> None:
    model = ZOO[name]()
    path = tmp_path / f"model.{suffix}"
    model.save_model(path)
    graph = load_model(path)
    kind = type(model)
    again = kind(model_file=path) if kind is xgb.Booster else kind()
    if kind is not xgb.Booster:
        again.load_model(path)
    assert graph.model == kind.__name__.replace("XGBRF", "XGB")
    expected = from_object(model)
    np.testing.assert_array_equal(graph.anchor.value, expected.anchor.value)
    np.testing.assert_array_equal(graph.anchor.threshold, expected.anchor.threshold)
    # A saved model does not keep which value was missing, and XGBoost itself forgets it, too.
    assert graph.input.missing_value is None
    rows = edge_rows(graph, "float32", inf=False)
    if kind is xgb.Booster:
        assert_same_as_booster(again, graph, rows)
    else:
        _check_estimator(again, graph, rows)


SCORES: dict[str, Any] = {
    "scalar": lambda: xgb.XGBRegressor(**SMALL, base_score=-3.25).fit(X, Y),
    "automatic": lambda: xgb.XGBRegressor(**SMALL).fit(X, Y + 100),
    "probability": lambda: xgb.XGBClassifier(**SMALL, base_score=0.01).fit(X, targets("two")),
    "classes": lambda: xgb.XGBClassifier(**SMALL).fit(X, targets("three")),
    "classes_scalar": lambda: xgb.XGBClassifier(**SMALL, base_score=0.7).fit(X, targets("three")),
    "pair": lambda: xgb.XGBRegressor(**SMALL).fit(X, targets("pair") + np.array([100, -50])),
    "pair_vector": lambda: xgb.XGBRegressor(**SMALL, multi_strategy="multi_output_tree").fit(
        X, targets("pair") + np.array([100, -50])
    ),
    "flags": lambda: xgb.XGBClassifier(**SMALL).fit(X, targets("flags")),
    "flags_vector": lambda: xgb.XGBClassifier(**SMALL, multi_strategy="multi_output_tree").fit(
        X, targets("flags")
    ),
    "counts": lambda: xgb.XGBRegressor(**SMALL, objective="count:poisson", base_score=7.5).fit(
        X, targets("ranks")
    ),
    "quantiles": lambda: xgb.XGBRegressor(
        **SMALL, objective="reg:quantileerror", quantile_alpha=[0.1, 0.5, 0.9]
    ).fit(X, Y + 10),
    "one class": lambda: xgb.XGBClassifier(**SMALL).fit(X, np.zeros(len(X), int)),
    "no splits": lambda: xgb.XGBRegressor(**SMALL, gamma=1e9).fit(X, Y),
    "stumps": lambda: xgb.XGBRegressor(**{**SMALL, "max_depth": 1}).fit(X, Y),
    "lossguide": lambda: xgb.XGBRegressor(**SMALL, grow_policy="lossguide", max_leaves=5).fit(X, Y),
    "pruned": lambda: xgb.XGBRegressor(**SMALL, tree_method="exact", gamma=2.0).fit(X, Y),
    "missing": lambda: xgb.XGBRegressor(**SMALL, missing=-999.0).fit(np.where(X > 1, -999.0, X), Y),
    "dart classes": lambda: xgb.XGBClassifier(**SMALL, booster="dart", rate_drop=0.4).fit(
        X, targets("three")
    ),
    "model": lambda: xgb.XGBModel(**SMALL, objective="reg:squarederror").fit(X, Y),
    "forest of classes": lambda: xgb.XGBRFClassifier(**SMALL, num_parallel_tree=None).fit(
        X, targets("three")
    ),
    "rank map": lambda: xgb.XGBRanker(**SMALL, objective="rank:map").fit(
        X, targets("two"), qid=np.repeat(np.arange(24), 10)
    ),
    "rank pairwise": lambda: xgb.XGBRanker(**SMALL, objective="rank:pairwise").fit(
        X, targets("ranks"), qid=np.repeat(np.arange(24), 10)
    ),
}


@pytest.mark.parametrize("name", SCORES)
def test_variants(name: str) -> None:
    model = SCORES[name]()
    _check(model)
    _check(model.get_booster())


def test_the_number_that_stands_for_missing() -> None:
    graph = from_object(SCORES["missing"]())
    assert graph.input.missing_value == -999.0
    assert from_object(ZOO["xgb_real_base"]()).input.missing_value is None


def test_own_objective() -> None:
    def own(y: np.ndarray, score: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return 1 / (1 + np.exp(-score)) - y, np.ones_like(score)

    _check(xgb.XGBClassifier(**SMALL, objective=own).fit(X, targets("two")))
    _check(xgb.XGBRegressor(**SMALL, objective=own).fit(X, Y))


def test_strings_as_categories_of_a_data_frame() -> None:
    colours = np.array(["red", "green", "blue", "grey"])[np.arange(len(X)) % 4]
    frame = pd.DataFrame({"a": X[:, 0], "colour": pd.Categorical(colours), "b": X[:, 1]})
    y = Y + (colours == "red") * 3
    for onehot in (1, 10):
        model = xgb.XGBRegressor(**SMALL, enable_categorical=True, max_cat_to_onehot=onehot).fit(frame, y)
        graph = from_object(model)
        assert graph.input.feature_names == ("a", "colour", "b")
        assert graph.input.categories == {1: ("blue", "green", "grey", "red")}
        assert graph.input.unknown_category == "error"
        assert not graph.input.numbers_are_categories
        assert graph.anchor.category_sets
        # The frame's own codes differ from training's.
        later = frame.assign(colour=pd.Categorical(colours, categories=["red", "blue", "grey", "green"]))
        codes = {c: i for i, c in enumerate(graph.input.categories[1])}
        rows = later.assign(colour=[codes[c] for c in colours]).to_numpy(np.float64)
        raw = reference.margins(graph.anchor, rows)
        assert_close(graph.output.compute(None, raw), model.predict(later), False)


@pytest.mark.parametrize(
    "kind", ["XGBClassifier", "XGBRegressor", "XGBRanker", "XGBRFClassifier", "XGBRFRegressor"]
)
def test_models_that_are_not_fitted_are_refused(kind: str) -> None:
    with pytest.raises(UnsupportedModel, match=f"the {kind} is not fitted"):
        from_object(getattr(xgb, kind)())


def test_a_booster_without_trees_is_refused() -> None:
    booster = xgb.train({}, xgb.DMatrix(X, Y), 0)
    with pytest.raises(UnsupportedModel, match="it is not fitted"):
        from_object(booster)
    with pytest.raises(UnsupportedModel, match="not fitted"):
        from_object(xgb.Booster())
    with pytest.raises(UnsupportedModel, match="xgboost's DMatrix is not supported"):
        from_object(xgb.DMatrix(X))
