"""Predictors that look at no column, against scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier, DummyRegressor

from hbtvm.errors import UnsupportedModel
from hbtvm.frontends import from_object
from tests.frontends.predictors.data import NUMBERS, ROWS, TARGETS, X
from tests.frontends.predictors.oracle import check


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("strategy", ["prior", "most_frequent"])
def test_classifiers(strategy: str, target: str) -> None:
    check(DummyClassifier(strategy=strategy).fit(X, TARGETS[target]), ROWS)


def test_classifiers_of_several_targets() -> None:
    y = np.stack([TARGETS["several"], TARGETS["binary"].astype(int)], axis=1)
    check(DummyClassifier().fit(X, y), ROWS)
    check(DummyClassifier(strategy="constant", constant=[1, 0]).fit(X, y), ROWS)
    check(DummyClassifier(strategy="constant", constant="blue").fit(X, TARGETS["strings"]), ROWS)


@pytest.mark.parametrize(
    "model",
    [DummyRegressor(), DummyRegressor(strategy="quantile", quantile=0.3), DummyRegressor(strategy="median")],
)
def test_regressors(model: Any) -> None:
    check(model.fit(X, NUMBERS), ROWS)
    check(model.fit(X, X[:, :2]), ROWS)


@pytest.mark.parametrize("strategy", ["stratified", "uniform"])
def test_random_labels_are_refused(strategy: str) -> None:
    with pytest.raises(UnsupportedModel, match=f"the DummyClassifier has '{strategy}' as its _strategy"):
        from_object(DummyClassifier(strategy=strategy).fit(X, TARGETS["binary"]))
