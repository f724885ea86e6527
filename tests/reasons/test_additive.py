"""Contributions to models that are sums of functions of single columns, against the libraries."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.special import logit
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.ensemble import BaggingClassifier, BaggingRegressor, GradientBoostingClassifier, VotingRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import BernoulliNB, CategoricalNB, ComplementNB, GaussianNB, MultinomialNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    KBinsDiscretizer,
    OneHotEncoder,
    PowerTransformer,
    QuantileTransformer,
    SplineTransformer,
    StandardScaler,
)

import hbtvm
from hbtvm.graph.views.additive import Additive
from hbtvm.operators.base import Input
from hbtvm.operators.pointwise import apply
from hbtvm.operators.products import Contract

pytestmark = pytest.mark.usefixtures("unchecked_kernels")

RNG = np.random.default_rng(0)
X = RNG.normal(size=(200, 4))
Y2 = (X[:, 0] + X[:, 1] ** 2 > 0.5).astype(int)
Y3 = Y2 + (X[:, 2] > 1)
R = X @ np.arange(4.0) + RNG.normal(size=200)
COUNTS = np.abs(X)
CODES = (2 * COUNTS).astype(int)

MODELS: dict[str, tuple[Any, np.ndarray, np.ndarray]] = {
    "gaussian": (GaussianNB(), X, Y2),
    "gaussian of three": (GaussianNB(), X, Y3),
    "bernoulli": (BernoulliNB(), X, Y3),
    "multinomial": (MultinomialNB(), COUNTS, Y3),
    "complement": (ComplementNB(), COUNTS, Y2),
    "categorical": (CategoricalNB(), CODES, Y2),
    "discriminant": (LinearDiscriminantAnalysis(), X, Y3),
    "bagged": (BaggingRegressor(Ridge(), 5, random_state=0), X, R),
    "bagged classifiers": (BaggingClassifier(LogisticRegression(), 5, random_state=0), X, Y2),
    "splines": (make_pipeline(SplineTransformer(), Ridge()), X, R),
    "bins": (make_pipeline(KBinsDiscretizer(encode="onehot"), LogisticRegression()), X, Y2),
    "quantiles": (make_pipeline(QuantileTransformer(n_quantiles=50), LogisticRegression()), X, Y3),
    "powers": (make_pipeline(PowerTransformer(), LogisticRegression()), X, Y2),
    "one against the rest": (OneVsRestClassifier(LogisticRegression()), X, Y3),
    "calibrated": (
        CalibratedClassifierCV(LogisticRegression(), method="sigmoid", cv=3, ensemble=False),
        X,
        Y2,
    ),
}


def margins(model: Any, rows: np.ndarray) -> np.ndarray:
    """Return what contributions add up to: scores before the link, of two classes the second's."""
    if hasattr(model, "decision_function"):
        return np.asarray(model.decision_function(rows))
    if not hasattr(model, "predict_proba"):
        return np.asarray(model.predict(rows))
    proba = model.predict_proba(rows)
    if proba.shape[1] == 2:
        return np.asarray(logit(proba[:, 1]))
    return np.asarray(model.predict_joint_log_proba(rows))


@pytest.mark.parametrize("name", MODELS)
def test_terms_add_up_and_are_functions_of_their_columns(name: str) -> None:
    unfitted, rows, y = MODELS[name]
    model = unfitted.fit(rows, y)
    compiled = hbtvm.compile(model, explain=True, batch_sizes=(100,))
    found = compiled.explain(rows)
    want = margins(model, rows)
    total = found.base_values + found.values.sum(axis=1)
    np.testing.assert_allclose(total, want, rtol=1e-6, atol=1e-6 * np.abs(want).max())
    # A term does not change with the other columns.
    for column in range(rows.shape[1]):
        mixed = rows[::-1].copy()
        mixed[:, column] = rows[:, column]
        np.testing.assert_allclose(
            compiled.explain(mixed).values[:, column], found.values[:, column], atol=1e-9
        )
    assert (found.base_values == found.base_values[0]).all()


@pytest.mark.parametrize("name", ["gaussian", "splines", "bins", "discriminant"])
def test_a_background_moves_terms_to_their_means(name: str) -> None:
    unfitted, rows, y = MODELS[name]
    model = unfitted.fit(rows, y)
    background = rows[:30]
    found = hbtvm.compile(model, explain=True, batch_sizes=(100,)).explain(rows[30:40], background=background)
    np.testing.assert_allclose(found.base_values[0], margins(model, background).mean(axis=0), rtol=1e-9)
    # The Shapley value of an additive game: the score with the background's column in place, on average.
    for column in range(rows.shape[1]):
        replaced = np.repeat(rows[30:40], len(background), axis=0)
        replaced[:, column] = np.tile(background[:, column], 10)
        without = margins(model, replaced)
        mean = without.reshape(10, len(background), *without.shape[1:]).mean(axis=1)
        want = margins(model, rows[30:40]) - mean
        np.testing.assert_allclose(found.values[:, column], want, rtol=1e-6, atol=1e-6)


def test_a_pipeline_of_mixed_columns_has_the_callers_columns() -> None:
    frame = pd.DataFrame(
        {"a": X[:, 0], "city": np.array(["Lyon", "Nice", "Metz"])[CODES[:, 1] % 3], "b": X[:, 2]}
    )
    steps = ColumnTransformer(
        [
            ("n", make_pipeline(StandardScaler(), SplineTransformer(4)), ["a", "b"]),
            ("c", OneHotEncoder(), ["city"]),
        ]
    )
    model = make_pipeline(steps, LogisticRegression()).fit(frame, Y2)
    found = hbtvm.compile(model, explain=True, batch_sizes=(100,)).explain(frame)
    assert found.feature_names == ("a", "city", "b")
    np.testing.assert_allclose(
        found.base_values + found.values.sum(axis=1), model.decision_function(frame), rtol=1e-6, atol=1e-6
    )


def test_wide_inputs_take_memory_for_their_weights_only() -> None:
    width = 20_000
    sums = Additive(np.arange(width, dtype=np.int32))
    score = apply("add", Contract(Input(width), np.ones((width, 2))), np.ones(2))
    tracemalloc.start()
    try:
        found = sums.sum_of(score)
        assert tracemalloc.get_traced_memory()[1] < 20 * width * 8
    finally:
        tracemalloc.stop()
    assert found is not None
    (part,) = found.parts
    np.testing.assert_array_equal(part.weight, np.ones((width, 2)))
    np.testing.assert_array_equal(found.constant, np.ones(2))


def test_calibrated_trees_are_read_before_the_sigmoid() -> None:
    trees = GradientBoostingClassifier(n_estimators=6, max_depth=3, random_state=0)
    model = CalibratedClassifierCV(trees, method="sigmoid", cv=3, ensemble=False).fit(X, Y2)
    found = hbtvm.compile(model, explain=True, batch_sizes=(100,)).explain(X)
    total = found.base_values + found.values.sum(axis=1)
    np.testing.assert_allclose(total, logit(model.predict_proba(X)[:, 1]), rtol=1e-6, atol=1e-6)
    # The calibration is linear in the trees' margins: so are the values.
    (part,) = model.calibrated_classifiers_
    slope = -part.calibrators[0].a_
    inner = hbtvm.compile(part.estimator, explain=True, batch_sizes=(100,)).explain(X)
    np.testing.assert_allclose(found.values, slope * inner.values, rtol=1e-6, atol=1e-9)


def test_a_vote_of_sums_is_a_sum() -> None:
    model = VotingRegressor([("a", Ridge()), ("b", make_pipeline(SplineTransformer(), Ridge()))]).fit(X, R)
    found = hbtvm.compile(model, explain=True, batch_sizes=(100,)).explain(X)
    np.testing.assert_allclose(found.base_values + found.values.sum(axis=1), model.predict(X), rtol=1e-6)


@pytest.mark.parametrize(
    "model",
    [
        QuadraticDiscriminantAnalysis(),
        CalibratedClassifierCV(LogisticRegression(), method="sigmoid", cv=3),
        CalibratedClassifierCV(LogisticRegression(), method="isotonic", cv=3, ensemble=False),
    ],
    ids=["quadratic", "calibrated", "isotonic"],
)
def test_other_models_have_no_exact_values(model: Any) -> None:
    compiled = hbtvm.compile(model.fit(X, Y2), explain=True, batch_sizes=(100,))
    with pytest.raises(hbtvm.InputError, match="no exact reasons: it is neither"):
        compiled.explain(X)
