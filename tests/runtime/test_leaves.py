"""Leaves of each tree, held against the libraries' own numbers."""

from __future__ import annotations

from typing import Any

import catboost
import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.ensemble import RandomForestRegressor
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

import hbtvm
from hbtvm.errors import InputError
from hbtvm.frontends import from_object
from hbtvm.graph.views import views_of
from hbtvm.runtime.model import Model
from tests.by_reference import predict

pytestmark = pytest.mark.usefixtures("unchecked_kernels")

RANDOM = np.random.default_rng(3)
X = RANDOM.normal(size=(400, 4))
X[RANDOM.random(X.shape) < 0.1] = np.nan
TARGET = np.nan_to_num(X[:, 0] * 2 + X[:, 1] * X[:, 2])
LABELS = np.digitize(TARGET, [-1, 1])
ROWS = X[:70]
FRAME = pd.DataFrame(X, columns=list("abcd")).assign(
    city=pd.Categorical(
        np.array(["Oslo", "Rome", "Bern"])[np.digitize(TARGET + RANDOM.normal(size=400), [-1, 1])]
    )
)
TREE = {"max_depth": 4, "random_state": 0}


def compiled(model: Any, **options: Any) -> Model:
    return hbtvm.compile(model, batch_sizes=64, threads=1, explain=True, **options)


def same(got: np.ndarray, expected: np.ndarray, dtype: str) -> None:
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, expected)


def test_lightgbm_with_categories() -> None:
    model = lgb.LGBMClassifier(n_estimators=5, num_leaves=8, verbose=-1).fit(FRAME, LABELS)
    made = compiled(model)
    same(made.apply(FRAME[:70]), model.predict(FRAME[:70], pred_leaf=True), "int32")
    terms = made.predict_per_tree(FRAME[:70])
    assert terms.shape == (70, 5, 3)
    np.testing.assert_allclose(terms.sum(axis=1), model.predict(FRAME[:70], raw_score=True), rtol=1e-6)
    some = model.predict_proba(FRAME[:70], start_iteration=1, num_iteration=3)
    np.testing.assert_allclose(made.predict_iterations(FRAME[:70], (1, 4), "proba"), some, rtol=1e-6)


def test_xgboost() -> None:
    model = xgb.XGBClassifier(n_estimators=6, max_depth=3).fit(X, LABELS)
    made = compiled(model)
    rows = ROWS.astype(np.float32)
    same(made.apply(rows), model.apply(rows), "int32")
    same(made.apply(rows[:1]), model.apply(rows[:1]), "int32")
    some = model.predict(rows, output_margin=True, iteration_range=(0, 4))
    np.testing.assert_allclose(made.predict_iterations(rows, (0, 4), "raw"), some, rtol=1e-5, atol=1e-6)


def test_catboost() -> None:
    pool = catboost.Pool(FRAME.assign(city=FRAME.city.astype(str)), TARGET, cat_features=["city"])
    model = catboost.CatBoostRegressor(
        iterations=6, depth=3, verbose=0, one_hot_max_size=5, random_seed=0, allow_writing_files=False
    ).fit(pool)
    view = views_of(from_object(model))["leaves"]
    rows = FRAME.assign(city=FRAME.city.astype(str))[:70]
    expected = model.calc_leaf_indexes(catboost.Pool(rows, cat_features=["city"]))
    same(predict(view, rows), expected, "int32")
    made = compiled(model)
    same(made.apply(rows), expected, "int32")
    np.testing.assert_allclose(list(made.staged_predict(rows)), list(model.staged_predict(rows)), rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_scalers_in_front(dtype: str) -> None:
    model = make_pipeline(SimpleImputer(), StandardScaler(), RandomForestRegressor(5, **TREE))
    model.fit(X, TARGET)
    rows = ROWS.astype(dtype)
    made = compiled(model)
    same(made.apply(rows), model[-1].apply(model[:-1].transform(rows)), "int64")
    total = made.predict_per_tree(rows).mean(axis=1)
    np.testing.assert_allclose(total, model.predict(rows), rtol=1e-12)


def test_encoders_and_stages_in_front() -> None:
    columns = make_column_transformer(
        (OneHotEncoder(), ["city"]), (make_pipeline(SimpleImputer(), PCA(2)), list("abcd"))
    )
    model = make_pipeline(columns, RandomForestRegressor(4, **TREE)).fit(FRAME, TARGET)
    made = compiled(model)
    assert made.package.stages
    same(made.apply(FRAME[:70]), model[-1].apply(columns.transform(FRAME[:70])), "int64")


def _halved(rows: np.ndarray) -> np.ndarray:
    return np.array([[value / 2 for value in row] for row in rows.tolist()])


def test_python_steps() -> None:
    model = make_pipeline(SimpleImputer(), FunctionTransformer(_halved), RandomForestRegressor(3, **TREE))
    model.fit(X, TARGET)
    made = compiled(model, python_steps="keep")
    same(made.apply(ROWS), model[-1].apply(model[:-1].transform(ROWS)), "int64")
    first = model[-1].estimators_[0].predict(model[:-1].transform(ROWS))
    np.testing.assert_allclose(next(made.staged_predict(ROWS)), first, rtol=1e-12)


def test_trees_inside_other_operators() -> None:
    from sklearn.ensemble import StackingRegressor
    from sklearn.linear_model import Ridge

    trees = [("trees", RandomForestRegressor(3, **TREE))]
    model = StackingRegressor(trees, Ridge(), cv=2).fit(np.nan_to_num(X), TARGET)
    made = compiled(model)
    assert not {"leaves", "trees"} & set(made.views)
    with pytest.raises(InputError, match="StackingRegressor has no leaf indices: its trees are combined by"):
        made.apply(np.nan_to_num(ROWS))
