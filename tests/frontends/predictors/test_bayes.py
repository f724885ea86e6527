"""Naive Bayes classifiers against scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.naive_bayes import BernoulliNB, CategoricalNB, ComplementNB, GaussianNB, MultinomialNB

from hbtvm.errors import InputError, UnsupportedModel
from hbtvm.frontends import from_object
from tests.frontends.predictors.data import COUNTS, NEW_COUNTS, ROWS, TARGETS, X
from tests.frontends.predictors.oracle import check, found


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("model", [GaussianNB(), BernoulliNB(binarize=2.5)])
def test_of_numbers(model: Any, target: str) -> None:
    check(model.fit(X, TARGETS[target]), ROWS)


def test_given_priors() -> None:
    check(GaussianNB(priors=[0.9, 0.1]).fit(X, TARGETS["binary"]), ROWS)


@pytest.mark.parametrize("target", ["binary", "strings"])
@pytest.mark.parametrize(
    "model",
    [
        MultinomialNB(),
        MultinomialNB(alpha=0.1, fit_prior=False),
        ComplementNB(),
        ComplementNB(norm=True),
        CategoricalNB(),
        BernoulliNB(alpha=2.0),
    ],
)
def test_of_counts(model: Any, target: str) -> None:
    check(model.fit(COUNTS, TARGETS[target]), NEW_COUNTS)


def test_one_class() -> None:
    for model in (GaussianNB(), ComplementNB(), MultinomialNB()):
        check(model.fit(COUNTS, np.full(len(COUNTS), "only")), NEW_COUNTS)


def test_of_numbers_that_are_zeros_and_ones_already() -> None:
    ones = (np.arange(6) < X).astype(np.float64)
    check(BernoulliNB(binarize=None).fit(ones, TARGETS["several"]), ones[:40])


def test_a_class_that_never_occurs_has_no_share() -> None:
    model = MultinomialNB(class_prior=[1.0, 0.0]).fit(COUNTS, TARGETS["binary"])
    check(model, NEW_COUNTS)


def test_codes_that_training_did_not_have_have_no_label() -> None:
    model = CategoricalNB().fit(COUNTS, TARGETS["strings"])
    graph = from_object(model)
    rows = NEW_COUNTS[:3].copy()
    rows[1, 2], rows[2, 0] = 1000.0, -1.0
    assert np.isnan(found(graph, rows, "proba")).any(axis=1).tolist() == [False, True, True]
    with pytest.raises(InputError, match="has no label"):
        found(graph, rows[1:2])
    np.testing.assert_array_equal(found(graph, rows[:1]), model.predict(rows[:1]))


def test_probabilities_of_zero_are_refused() -> None:
    never = COUNTS.copy()
    never[TARGETS["binary"], 0] = 0.0
    model = MultinomialNB(alpha=0.0, force_alpha=True).fit(never, TARGETS["binary"])
    with pytest.raises(UnsupportedModel, match="the MultinomialNB has a probability of 0"):
        from_object(model)
