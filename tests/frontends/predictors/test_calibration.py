"""Calibrators as operators, against scikit-learn's."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import make_classification
from sklearn.ensemble import RandomForestClassifier
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

import hbtvm
from hbtvm.errors import InputError, ModelError, UnsupportedModel
from hbtvm.frontends import from_object
from hbtvm.frontends.pickles.live import from_live
from hbtvm.frontends.predictors.calibration import calibrated_probabilities
from hbtvm.frontends.transformers.where import Where
from hbtvm.operators.base import Input, evaluate
from hbtvm.runtime.package.file import to_bytes


@pytest.mark.parametrize("base", ["decision", "proba"])
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("method", ["sigmoid", "isotonic", "temperature"])
def test_calibrated_probabilities(method: str, classes: int, base: str) -> None:
    X, y = make_classification(300, 6, n_informative=4, n_classes=classes, random_state=1)
    inner = LogisticRegression() if base == "decision" else RandomForestClassifier(5, random_state=1)
    model = CalibratedClassifierCV(inner, method=method, cv=2).fit(X, y)
    for one in model.calibrated_classifiers_:
        name = "predict_proba" if base == "proba" else "decision_function"
        scores = getattr(one.estimator, name)(X)
        if classes == 2:
            scores = scores[:, 1:] if base == "proba" else scores[:, None]
        calibrators = from_live(one).records("calibrators")
        node = calibrated_probabilities(
            calibrators, Input(scores.shape[1]), range(classes), classes, base == "proba", Where()
        )
        got = evaluate([node], lambda leaf, x=scores: x)[0]
        np.testing.assert_allclose(got, one.predict_proba(X), rtol=1e-10, atol=1e-15)


def test_classes_that_an_estimator_lacks_have_no_probability() -> None:
    x = np.linspace(-1, 1, 20)
    fitted = [IsotonicRegression(out_of_bounds="clip").fit(x, x * factor + 1 > 1) for factor in (1, -1)]
    rows = np.random.default_rng(0).normal(size=(50, 2))
    node = calibrated_probabilities([from_live(one) for one in fitted], Input(2), [3, 1], 4, False, Where())
    got = evaluate([node], lambda leaf: rows)[0]
    parts = np.zeros((50, 4))
    parts[:, 3], parts[:, 1] = fitted[0].predict(rows[:, 0]), fitted[1].predict(rows[:, 1])
    total = parts.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(got, np.where(total == 0, 0.25, parts / np.where(total == 0, 1, total)))


def regression(**options: Any) -> IsotonicRegression:
    rng = np.random.default_rng(3)
    x = rng.normal(size=80).round(1)
    return IsotonicRegression(**options).fit(x, x**3 + rng.normal(size=80))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("options", [{}, {"out_of_bounds": "clip"}, {"increasing": False}, {"y_max": 0.5}])
def test_isotonic_regression(options: dict[str, Any], dtype: str) -> None:
    model = regression(**options)
    x = np.concatenate([np.linspace(-5, 5, 200), model.X_thresholds_]).astype(dtype)
    graph = from_object(model)
    got = graph.output.compute(None, graph.anchor.reference(x[:, None]))
    np.testing.assert_allclose(got, model.predict(x), rtol=1e-12, atol=1e-14)


def test_isotonic_regression_in_float32() -> None:
    x = np.random.default_rng(1).normal(size=60).astype(np.float32)
    model = IsotonicRegression(out_of_bounds="clip").fit(x, x)
    rows = np.linspace(-3, 3, 99)
    graph = from_object(model)
    got = graph.output.compute(None, graph.anchor.reference(rows[:, None]))
    np.testing.assert_allclose(got, model.predict(rows), rtol=1e-5)


def test_rows_of_one_number_each() -> None:
    model = regression(out_of_bounds="clip")
    x = np.linspace(-5, 5, 70)
    made = hbtvm.compile(model, batch_sizes=64, dtype="float64", threads=1)
    for compiled in (made, hbtvm.load(to_bytes(made.package))):
        for rows in (x, x[:1], x[:, None], x[:5].tolist(), pd.Series(x), np.arange(4)):
            wanted = model.predict(rows)
            np.testing.assert_allclose(compiled.predict(rows), wanted, rtol=1e-12, atol=1e-14)
            np.testing.assert_allclose(
                compiled.transform(rows), model.transform(rows), rtol=1e-12, atol=1e-14
            )
    with pytest.raises(InputError, match="expected rows of 1 columns"):
        made.predict(x.reshape(-1, 2))


def test_isotonic_regression_of_one_point() -> None:
    model = IsotonicRegression().fit([1.0, 1.0], [3.0, 4.0])
    graph = from_object(model)
    assert graph.output.compute(None, graph.anchor.reference(np.zeros((3, 1)))).tolist() == [3.5] * 3


def test_refusals() -> None:
    with pytest.raises(UnsupportedModel, match="out_of_bounds='raise'"):
        from_object(regression(out_of_bounds="raise"))
    damaged = regression()
    damaged.X_thresholds_ = damaged.X_thresholds_[::-1]
    with pytest.raises(ModelError, match="thresholds"):
        from_object(damaged)
