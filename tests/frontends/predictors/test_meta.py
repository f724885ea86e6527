"""Estimators made of binary ones, one for each target, chains and thresholds, against scikit-learn."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from lightgbm import LGBMRegressor
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import FixedThresholdClassifier, TunedThresholdClassifierCV
from sklearn.multiclass import OneVsOneClassifier, OneVsRestClassifier, OutputCodeClassifier
from sklearn.multioutput import ClassifierChain, MultiOutputClassifier, MultiOutputRegressor, RegressorChain
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeRegressor

from hbtvm.graph.networks.network import Network
from tests.frontends.predictors.data import NUMBERS, ROWS, TARGETS, X
from tests.staged import check

pytestmark = pytest.mark.filterwarnings("ignore")

MANY = np.stack([X[:, i] > np.median(X[:, i]) for i in range(4)], axis=1).astype(int)
TWO = np.stack([NUMBERS, NUMBERS**2 / 100], axis=1)


def forest() -> Any:
    return RandomForestClassifier(4, random_state=0, max_depth=5)


BINARY = {
    "linear": LogisticRegression(),
    "forest": forest(),
    "machine": LinearSVC(random_state=0),
    "pipeline": make_pipeline(StandardScaler(), LogisticRegression()),
}


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        # The others take no regressor, or its responses are no votes.
        (OneVsRestClassifier, "regressor"),
        *product((OneVsRestClassifier, OneVsOneClassifier, OutputCodeClassifier), BINARY),
    ],
)
@pytest.mark.parametrize("target", ["strings", "two strings"])
def test_classes_by_binary_estimators(name: str, target: str, kind: Any) -> None:
    options = {"random_state": 0} if kind is OutputCodeClassifier else {}
    model = kind(BINARY.get(name, Ridge()), **options).fit(X, TARGETS[target])
    check(model, ROWS)


@pytest.mark.parametrize("name", ["linear", "forest", "machine"])
def test_several_labels_of_a_row(name: str) -> None:
    # The last label is everywhere, so that no estimator is fitted for it.
    y = np.concatenate([MANY, np.ones((len(X), 1), int)], axis=1)
    check(OneVsRestClassifier(BINARY[name]).fit(X, MANY), ROWS)
    if name == "linear":
        check(OneVsRestClassifier(BINARY[name]).fit(X, y), ROWS)


def test_many_linear_models_are_one_product() -> None:
    for model in (OneVsRestClassifier(LogisticRegression()), MultiOutputClassifier(LogisticRegression())):
        graph = check(model.fit(X, MANY), ROWS)
        assert isinstance(graph.anchor, Network)
        assert sum(node.kind in ("contract", "linear_sum") for node in graph.anchor.nodes) == 1


@pytest.mark.parametrize("name", BINARY)
def test_a_classifier_for_each_target(name: str) -> None:
    # Of labels of different types numpy makes one type: not looked at here.
    y = np.stack([TARGETS["strings"], np.where(MANY[:, 1], "p", "q")], axis=1)
    check(MultiOutputClassifier(BINARY[name]).fit(X, y), ROWS)


@pytest.mark.parametrize("inner", [Ridge(), LGBMRegressor(n_estimators=3, verbose=-1)])
def test_a_regressor_for_each_target(inner: Any) -> None:
    check(MultiOutputRegressor(inner).fit(X, TWO), ROWS)
    check(MultiOutputRegressor(inner).fit(X, TWO[:, :1]), ROWS)


@pytest.mark.parametrize("name", ["linear", "forest"])
@pytest.mark.parametrize("method", ["predict", "predict_proba"])
def test_chains_of_classifiers(name: str, method: str) -> None:
    model = ClassifierChain(BINARY[name], order=[2, 0, 3, 1], chain_method=method, random_state=0)
    check(model.fit(X, MANY), ROWS)


def test_chains_by_decisions() -> None:
    model = ClassifierChain(LogisticRegression(), chain_method="decision_function").fit(X, MANY)
    check(model, ROWS)


@pytest.mark.parametrize("inner", [Ridge(), DecisionTreeRegressor(max_depth=4), RandomForestRegressor(3)])
def test_chains_of_regressors(inner: Any) -> None:
    check(RegressorChain(inner, order=[1, 0]).fit(X, TWO), ROWS)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"threshold": 0.3, "pos_label": "no"},
        {"threshold": 0.3, "pos_label": "yes"},
        {"threshold": -0.3, "response_method": "decision_function", "pos_label": "no"},
        {"threshold": 0.7, "response_method": "predict_proba"},
    ],
)
def test_fixed_thresholds(options: dict[str, Any]) -> None:
    for inner in (LogisticRegression(), make_pipeline(StandardScaler(), LogisticRegression())):
        check(FixedThresholdClassifier(inner, **options).fit(X, TARGETS["two strings"]), ROWS)
    if not options:
        check(FixedThresholdClassifier(LinearSVC(random_state=0)).fit(X, TARGETS["two strings"]), ROWS)
        check(FixedThresholdClassifier(forest()).fit(X, TARGETS["two strings"]), ROWS)


@pytest.mark.parametrize("scoring", ["balanced_accuracy", "f1"])
def test_tuned_thresholds(scoring: str) -> None:
    # f1 is that of the label 1, here the first one.
    y = np.where(TARGETS["two strings"] == "yes", 2, 1)
    check(TunedThresholdClassifierCV(LogisticRegression(), scoring=scoring, cv=2).fit(X, y), ROWS)
    check(TunedThresholdClassifierCV(forest(), scoring=scoring, cv=2).fit(X, y), ROWS)
