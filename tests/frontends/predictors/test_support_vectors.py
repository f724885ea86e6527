"""Support vector machines against scikit-learn, whose libsvm computes in float64."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.ensemble import StackingClassifier, VotingClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.svm import SVC, SVR, NuSVC, NuSVR, OneClassSVM

import hbtvm
from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.frontends import from_object
from tests.answers import same
from tests.frontends.predictors.data import NUMBERS, ROWS, TARGETS, X
from tests.frontends.predictors.oracle import check, found

KERNELS = ["linear", "poly", "rbf", "sigmoid"]


@pytest.mark.parametrize("target", ["two strings", "several", "strings"])
@pytest.mark.parametrize("kernel", KERNELS)
def test_classifiers(kernel: str, target: str) -> None:
    check(SVC(kernel=kernel, coef0=0.5, C=3.0).fit(X, TARGETS[target]), ROWS)


@pytest.mark.parametrize("target", ["binary", "several"])
@pytest.mark.parametrize(
    "options",
    [
        {"decision_function_shape": "ovo"},
        {"break_ties": True},
        {"gamma": "auto", "class_weight": "balanced"},
        {"kernel": "poly", "degree": 5, "gamma": 0.05, "coef0": 1.0},
    ],
)
def test_options(options: dict[str, Any], target: str) -> None:
    check(SVC(**options).fit(X, TARGETS[target]), ROWS)
    check(NuSVC(nu=0.1, **options).fit(X, TARGETS[target]), ROWS)


@pytest.mark.parametrize("target", ["two strings", "several"])
def test_probabilities(target: str) -> None:
    """libsvm stops its rounds early: what it has then is what is compared."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        for model in (SVC(probability=True, random_state=0), NuSVC(nu=0.2, probability=True, random_state=0)):
            check(model.fit(X, TARGETS[target]), ROWS)


def test_degree_zero() -> None:
    check(SVC(kernel="poly", degree=0).fit(X, TARGETS["several"]), ROWS)


def test_many_classes() -> None:
    y = np.digitize(X[:, 0], np.quantile(X[:, 0], np.linspace(0, 1, 9)[1:-1]))
    check(SVC().fit(X, y), ROWS)


@pytest.mark.parametrize("kernel", KERNELS)
def test_regressors_and_one_class(kernel: str) -> None:
    for model in (SVR(kernel=kernel), NuSVR(kernel=kernel, C=0.5)):
        check(model.fit(X, NUMBERS / 30), ROWS)
    check(OneClassSVM(kernel=kernel, nu=0.3).fit(X), ROWS)


def test_machines_of_sparse_rows() -> None:
    model = SVC().fit(csr_array(X), TARGETS["several"])
    same(found(from_object(model), ROWS), model.predict(ROWS), 0, 0)
    same(found(from_object(model), ROWS, "decision"), model.decision_function(ROWS), 1e-9, 1e-11)


def test_refusals() -> None:
    with pytest.raises(UnsupportedModel, match="the SVC has a custom object as its kernel"):
        from_object(SVC().fit(X, TARGETS["binary"]).set_params(kernel=lambda a, b: a @ b.T))
    with pytest.raises(UnsupportedModel, match="the SVC has 'precomputed' as its kernel"):
        from_object(SVC(kernel="precomputed").fit(X @ X.T, TARGETS["binary"]))
    with pytest.raises(UnsupportedModel, match="break_ties"):
        from_object(SVC(break_ties=True, decision_function_shape="ovo").fit(X, TARGETS["several"]))
    model = SVC().fit(X, TARGETS["several"])
    model._n_support = model._n_support + 1
    with pytest.raises(ModelError, match="support vectors of its classes"):
        from_object(model)


@pytest.mark.parametrize("target", ["two strings", "several"])
def test_probabilities_that_another_model_reads(target: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)
        machine = SVC(probability=True, random_state=0)
        vote = VotingClassifier([("svc", machine), ("bayes", GaussianNB())], voting="soft")
        vote.fit(X, TARGETS[target])
        stack = StackingClassifier([("svc", machine)], cv=2).fit(X, TARGETS[target])
    check(stack, ROWS)
    check(vote, ROWS)
    compiled = hbtvm.compile(vote, batch_sizes=64, dtype="float64", threads=1)
    for rows in (ROWS[:60], ROWS[:1]):
        np.testing.assert_allclose(compiled.predict_proba(rows), vote.predict_proba(rows), rtol=1e-9)
