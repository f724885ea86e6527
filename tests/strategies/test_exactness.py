"""Compiled models predict what their library predicts; hypothesis draws models and rows."""

from __future__ import annotations

import functools
from typing import Any

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sklearn import ensemble, tree

import hbtvm
from hbtvm.graph.trees.ensemble import LEAF
from hbtvm.run import read_model
from hbtvm.strategies import STRATEGIES, make_forest, workload_of

pytestmark = pytest.mark.usefixtures("unchecked_kernels")

FEATURES = 4
SKLEARN = {
    "tree": (tree.DecisionTreeClassifier, tree.DecisionTreeRegressor),
    "forest": (ensemble.RandomForestClassifier, ensemble.RandomForestRegressor),
    "extra_trees": (ensemble.ExtraTreesClassifier, ensemble.ExtraTreesRegressor),
    "boosting": (ensemble.GradientBoostingClassifier, ensemble.GradientBoostingRegressor),
    "hist": (ensemble.HistGradientBoostingClassifier, ensemble.HistGradientBoostingRegressor),
}
slow = settings(
    derandomize=True, deadline=None, max_examples=14, suppress_health_check=list(HealthCheck), database=None
)


@st.composite
def trained_models(draw: st.DrawFn) -> tuple[Any, bool]:
    """A trained model, and whether it accepts NaN and infinities."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows = draw(st.integers(20, 200))
    X = rng.normal(size=(rows, FEATURES))
    X[:, 1] = X[:, 1].round(1)
    X[:, 2] = rng.integers(0, 6, rows)
    y = X[:, 0] * X[:, 1] + (X[:, 2] == 3) + 0.1 * rng.normal(size=rows)
    classes = draw(st.sampled_from([0, 2, 3]))
    if classes:
        y = np.array(["no", "yes", "maybe"])[np.digitize(y, np.quantile(y, [0.5, 0.8][: classes - 1]))]
    kind = draw(st.sampled_from(["lightgbm", "xgboost", *SKLEARN]))
    trees, depth = draw(st.integers(1, 6)), draw(st.integers(1, 7))
    missing = draw(st.booleans()) and kind in ("lightgbm", "xgboost", "hist", "tree", "forest")
    if missing:
        X[rng.random(X.shape) < 0.15] = np.nan
    if kind == "lightgbm":
        options = {
            "n_estimators": trees,
            "max_depth": depth,
            "min_child_samples": draw(st.sampled_from([1, 5, 50])),
            "min_data_per_group": 1,
            "cat_smooth": 1.0,
            "boosting_type": draw(st.sampled_from(["gbdt", "dart", "rf"])),
            "subsample": 0.7,
            "subsample_freq": 1,
            "use_missing": draw(st.booleans()),
            "zero_as_missing": draw(st.booleans()),
            "verbose": -1,
            "n_jobs": 1,
        }
        categories = draw(st.sampled_from(["auto", [2]]))
        make = lgb.LGBMClassifier if classes else lgb.LGBMRegressor
        return make(**options).fit(X, y, categorical_feature=categories), True
    if kind == "xgboost":
        options = {
            "n_estimators": trees,
            "max_depth": depth,
            "n_jobs": 1,
            "enable_categorical": True,
            "feature_types": draw(st.sampled_from([["q"] * 4, ["q", "q", "c", "q"]])),
            "max_cat_to_onehot": draw(st.sampled_from([1, 20])),
            "booster": draw(st.sampled_from(["gbtree", "dart"])),
        }
        if classes:
            return xgb.XGBClassifier(**options).fit(X, np.unique(y, return_inverse=True)[1]), True
        return xgb.XGBRegressor(**options).fit(X, y), True
    make = SKLEARN[kind][0 if classes else 1]
    size = {"tree": {}, "hist": {"max_iter": trees}}.get(kind, {"n_estimators": trees})
    extra = (
        {"categorical_features": [2], "min_samples_leaf": 2} if kind == "hist" and draw(st.booleans()) else {}
    )
    return make(max_depth=depth, random_state=1, **size, **extra).fit(X, y), missing or kind == "hist"


def rows_for(model: Any, special: bool, dtype: str, seed: int) -> np.ndarray:
    """Rows, some of whose values are thresholds, their neighbours, zeros, NaN or infinite."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(60, FEATURES))
    X[:, 2] = rng.integers(0, 6, 60)
    ensemble_ = read_model(model).anchor
    split = (ensemble_.left != LEAF) & (ensemble_.category_set < 0)
    for feature in range(FEATURES):
        values = ensemble_.threshold[split & (ensemble_.feature == feature)]
        if feature == 2 and not len(values):
            continue
        with np.errstate(over="ignore"):
            near = values.astype(dtype).astype(float)
        pool = [values, near, np.nextafter(near, np.inf), np.nextafter(near, -np.inf), [0.0, -0.0]]
        if special:
            pool.append([np.nan, np.inf, -np.inf] if feature != 2 else [np.nan])
        at = rng.random(60) < 0.5
        X[at, feature] = rng.choice(np.concatenate(pool), int(at.sum()))
    with np.errstate(over="ignore"):
        X = X.astype(dtype)
    if not isinstance(model, lgb.LGBMModel):
        # The other libraries refuse what is infinite in float32, but their thresholds may be.
        X = np.clip(X, -1e30, 1e30)
    return np.ascontiguousarray(X)


def agree(model: Any, compiled: hbtvm.Model, X: np.ndarray, relative: float) -> None:
    """Same labels, and values within `relative` of each other."""
    expected, got = model.predict(X), compiled.predict(X)
    assert got.shape == expected.shape
    if expected.dtype.kind == "f":
        scale = np.maximum(np.abs(expected), np.abs(expected).max())
        assert np.all(np.abs(got - expected) <= relative * scale)
    if not hasattr(model, "predict_proba"):
        return
    theirs, ours = model.predict_proba(X), compiled.predict_proba(X)
    np.testing.assert_allclose(ours, theirs, rtol=10 * relative, atol=relative)
    top = np.sort(theirs, axis=1)
    clear = top[:, -1] - top[:, -2] > 10 * relative  # ties may fall to either side of a rounding error
    np.testing.assert_array_equal(got[clear], expected[clear])


@pytest.mark.parametrize("strategy", STRATEGIES)
@slow
@given(drawn=trained_models(), seed=st.integers(0, 1000), dtype=st.sampled_from(["float32", "float64"]))
def test_compiled_models_are_exact(strategy: str, drawn: tuple[Any, bool], seed: int, dtype: str) -> None:
    model, special = drawn
    graph = read_model(model)
    forest = make_forest(graph.anchor, "float32", "float32")
    if STRATEGIES[strategy].refuse(workload_of(forest, 1)):
        return
    compiled = hbtvm.compile(graph, batch_sizes=(64,), threads=1, strategies=[strategy])
    agree(model, compiled, rows_for(model, special, dtype, seed), 1e-5)


@functools.cache
def _double(kind: str) -> Any:
    X = np.random.default_rng(0).normal(size=(300, FEATURES))
    y = X[:, 0] * X[:, 1] + X[:, 3]
    made = {
        "lightgbm": lgb.LGBMRegressor(n_estimators=40, verbose=-1, n_jobs=1),
        "hist": ensemble.HistGradientBoostingRegressor(max_iter=40),
        "forest": ensemble.RandomForestRegressor(40, random_state=0),
        "boosting": ensemble.GradientBoostingRegressor(n_estimators=40),
    }
    return made[kind].fit(X, y)


@pytest.mark.parametrize("kind", ["lightgbm", "hist", "forest", "boosting"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_float64_mode_is_within_1e_12(kind: str, strategy: str) -> None:
    model = _double(kind)
    graph = read_model(model)
    forest = make_forest(graph.anchor, "float32", "float64")
    if STRATEGIES[strategy].refuse(workload_of(forest, 1)):
        pytest.skip("this strategy does not hold this model")
    compiled = hbtvm.compile(graph, batch_sizes=(1, 64), threads=1, strategies=[strategy], dtype="float64")
    for dtype in ("float32", "float64"):
        agree(model, compiled, rows_for(model, False, dtype, 3), 1e-12)
