"""Nearest neighbours against scikit-learn, from the estimator to the package."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, StandardScaler

import hbtvm
from hbtvm.runtime.package.file import to_bytes

RNG = np.random.default_rng(0)
X = RNG.normal(size=(301, 5))
LABELS = np.array(["one", "three", "two"])[(X[:, 0] > 0).astype(int) + (X[:, 1] > 0.5)]
ROWS = np.concatenate([RNG.normal(size=(80, 5)), X[:20]])


@pytest.mark.parametrize(("weights", "scaled"), [("uniform", True), ("distance", False)])
def test_classifiers(weights: str, scaled: bool):
    own = KNeighborsClassifier(4, weights=weights)
    model = (make_pipeline(StandardScaler(), own) if scaled else own).fit(X, LABELS)
    compiled = hbtvm.compile(model, batch_sizes=50, threads=1)
    np.testing.assert_array_equal(compiled.predict(ROWS), model.predict(ROWS))
    np.testing.assert_allclose(compiled.predict_proba(ROWS), model.predict_proba(ROWS), rtol=1e-9, atol=1e-12)
    again = hbtvm.load(to_bytes(compiled.package))
    np.testing.assert_array_equal(again.predict_proba(ROWS[:1]), compiled.predict_proba(ROWS[:1]))


def test_regressors():
    model: Any = make_pipeline(MinMaxScaler(clip=True), KNeighborsRegressor(3, weights="distance"))
    model.fit(X, X[:, :2])
    compiled = hbtvm.compile(model, batch_sizes=50, threads=1)
    np.testing.assert_allclose(compiled.predict(ROWS), model.predict(ROWS), rtol=1e-9)


def test_of_points_that_are_equally_far_the_first_count():
    points = np.array([[0.0], [1.0], [-1.0], [1.0], [-1.0], [5.0]])
    model = KNeighborsClassifier(3, algorithm="brute").fit(points, ["a", "b", "a", "c", "c", "c"])
    compiled = hbtvm.compile(model, batch_sizes=1, threads=1)
    rows = np.array([[0.0], [0.5], [4.0]])
    np.testing.assert_array_equal(compiled.predict_proba(rows), model.predict_proba(rows))
