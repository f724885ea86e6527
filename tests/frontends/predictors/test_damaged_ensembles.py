"""Ensembles with wrong attributes: refused in a sentence, or read as something that can be computed."""

from __future__ import annotations

import copy
import random
from typing import Any

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import (
    AdaBoostClassifier,
    AdaBoostRegressor,
    BaggingClassifier,
    RandomForestClassifier,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier
from sklearn.multioutput import ClassifierChain
from sklearn.svm import LinearSVC

from hbtvm.errors import ModelError
from hbtvm.frontends import from_object
from tests.frontends.predictors.data import NUMBERS, ROWS, TARGETS, X
from tests.staged import outputs_of

pytestmark = pytest.mark.filterwarnings("ignore")

WRONG: tuple[Any, ...] = (
    None, -1, 0, 3.5, True, float("nan"), "x", [], [None], {}, np.zeros(0), np.array([np.nan] * 3),
    np.arange(50), np.array(["a"]), object,
)  # fmt: skip

_MEMBERS = [("a", LogisticRegression()), ("b", RandomForestClassifier(2, max_depth=2, random_state=0))]
MODELS: dict[str, tuple[Any, Any]] = {
    "voting": (VotingClassifier(_MEMBERS, weights=[1, 2]), TARGETS["strings"]),
    "stacking": (StackingClassifier(_MEMBERS, cv=2), TARGETS["strings"]),
    "bagging": (BaggingClassifier(LogisticRegression(), n_estimators=2, max_features=3), TARGETS["strings"]),
    "boosting": (AdaBoostClassifier(n_estimators=2), TARGETS["strings"]),
    "median": (AdaBoostRegressor(Ridge(), n_estimators=3), NUMBERS),
    "calibration": (CalibratedClassifierCV(LinearSVC(), cv=2), TARGETS["strings"]),
    "rest": (OneVsRestClassifier(LogisticRegression()), TARGETS["strings"]),
    "one": (OneVsOneClassifier(LogisticRegression()), TARGETS["strings"]),
    "chain": (ClassifierChain(LogisticRegression()), (X[:, :2] > 0).astype(int)),
    "threshold": (FixedThresholdClassifier(LogisticRegression()), TARGETS["binary"]),
}


@pytest.mark.parametrize("name", MODELS)
def test_wrong_attributes(name: str) -> None:
    estimator, y = MODELS[name]
    fitted = estimator.fit(X, y)
    draw, refused = random.Random(0), 0
    for attribute in vars(fitted):
        for wrong in draw.sample(WRONG, 3):
            model = copy.copy(fitted)
            setattr(model, attribute, wrong)
            try:
                graph = from_object(model)
            except ModelError:
                refused += 1
                continue
            outputs_of(graph, ROWS[:3])
    assert refused >= 3


def test_an_ensemble_of_itself() -> None:
    for name in ("voting", "bagging", "chain"):
        model = copy.copy(MODELS[name][0].fit(X, MODELS[name][1]))
        model.estimators_ = [model] * len(model.estimators_)
        with pytest.raises(ModelError, match=r"steps within steps|an unknown column|columns of"):
            from_object(model)
