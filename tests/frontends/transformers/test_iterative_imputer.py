"""``IterativeImputer`` against scikit-learn: by the operators' references, and compiled."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer
from sklearn.linear_model import LinearRegression, LogisticRegression, PoissonRegressor, Ridge
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor

import hbtvm
from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.frontends import from_object
from hbtvm.graph.columns.evaluate import evaluate
from tests.answers import same
from tests.frontends.predictors.data import ROWS, TARGETS, X
from tests.frontends.transformers.oracle import raw_of, table_of

RNG = np.random.default_rng(3)


def holes(rows: np.ndarray, share: float) -> np.ndarray:
    result: np.ndarray = np.where(RNG.random(rows.shape) < share, np.nan, rows)
    return result


TRAINING = holes(X, 0.2)
TRAINING[:, 3] = X[:, 3]
NEW = holes(ROWS[:60], 0.4)
NEW[3] = np.nan


def fitted(training: np.ndarray = TRAINING, **options: Any) -> IterativeImputer:
    with warnings.catch_warnings():
        # Few rounds do not converge, nor need they.
        warnings.simplefilter("ignore")
        return IterativeImputer(**options).fit(training)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"add_indicator": True, "max_iter": 2},
        {"estimator": make_pipeline(StandardScaler(), Ridge())},
        {
            "estimator": LinearRegression(),
            "n_nearest_features": 2,
            "imputation_order": "random",
            "random_state": 0,
        },
        {"min_value": -1, "max_value": [3, 4, 5, 6, 7, 8], "skip_complete": True},
        {"max_iter": 0},
        {"initial_strategy": "constant", "fill_value": 1.0, "imputation_order": "descending"},
        {"estimator": DecisionTreeRegressor(max_depth=4, random_state=0), "max_iter": 2},
        {"estimator": KNeighborsRegressor(3), "max_iter": 1},
        {"estimator": make_pipeline(StandardScaler(), PoissonRegressor()), "min_value": 0.1, "max_iter": 2},
    ],
    ids=lambda options: ",".join(options),
)
def test_options(options: dict[str, Any]) -> None:
    model = fitted(np.abs(TRAINING) if "min_value" in options else TRAINING, **options)
    table, want = table_of(model, 6), model.transform(NEW)
    np.testing.assert_allclose(evaluate(table, raw_of(NEW)), want, rtol=1e-9, atol=1e-10)
    assert table.names == tuple(model.get_feature_names_out())
    single = NEW.astype(np.float32)
    got, want = evaluate(table, raw_of(single), "float32"), model.transform(single)
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("keep", [False, True])
def test_columns_that_training_lacked(keep: bool) -> None:
    training = TRAINING.copy()
    training[:, 2] = np.nan
    model = fitted(training, keep_empty_features=keep, skip_complete=True, min_value=-2)
    np.testing.assert_allclose(
        evaluate(table_of(model, 6), raw_of(NEW)), model.transform(NEW), rtol=1e-9, atol=1e-10
    )


def test_a_number_for_missing() -> None:
    training, rows = (np.nan_to_num(one, nan=-1.0) for one in (TRAINING, NEW))
    model = fitted(training, missing_values=-1)
    np.testing.assert_allclose(
        evaluate(table_of(model, 6), raw_of(rows)), model.transform(rows), rtol=1e-9, atol=1e-10
    )


def test_compiled() -> None:
    columns, rows = np.tile(TRAINING, (1, 2))[:, :10], np.tile(NEW, (1, 2))[:, :10]
    columns = np.where(RNG.random(columns.shape) < 0.1, np.nan, columns)
    model = make_pipeline(fitted(columns, max_iter=10, tol=0.0), LogisticRegression())
    model[-1].fit(np.tile(X, (1, 2))[:, :10], TARGETS["strings"])
    assert len(model[0].imputation_sequence_) == 100
    compiled = hbtvm.compile(model, batch_sizes=64, dtype="float64", threads=1)
    for few in (rows, rows[:1]):
        same(compiled.predict_proba(few), model.predict_proba(few), 1e-8, 1e-10)
    alone = hbtvm.compile(model[0], batch_sizes=(1, 64), dtype="float64", threads=1)
    single = rows.astype(np.float32)
    for few in (rows, rows[:1], single, single[:1]):
        rtol = 1e-9 if few.dtype == np.float64 else 1e-4
        same(alone.transform(few), model[0].transform(few), rtol, rtol)
    trees = fitted(
        max_iter=1, estimator=RandomForestRegressor(3, max_depth=3, random_state=0), add_indicator=True
    )
    made = hbtvm.compile(trees, batch_sizes=64, dtype="float64", threads=1)
    np.testing.assert_allclose(made.transform(NEW), trees.transform(NEW), rtol=1e-9, atol=1e-10)


def test_refusals() -> None:
    with pytest.raises(UnsupportedModel, match=r"the IterativeImputer draws random numbers"):
        from_object(fitted(sample_posterior=True, max_iter=1))
    with pytest.raises(UnsupportedModel, match=r"imputes by a KNeighborsRegressor in 36 steps"):
        from_object(fitted(estimator=KNeighborsRegressor(), max_iter=6, tol=0.0))
    model = fitted()
    model.imputation_sequence_[1] = model.imputation_sequence_[1]._replace(feat_idx=6)
    with pytest.raises(ModelError, match="imputes from columns that do not exist"):
        from_object(model)
    model = fitted()
    model._min_value = model._min_value[:-1]
    with pytest.raises(ModelError, match="its _min_value has 5 values for 6 columns"):
        from_object(model)
    model = fitted()
    model.imputation_sequence_ = [1]
    with pytest.raises(ModelError, match="imputation_sequence_"):
        from_object(model)
