"""Nearest neighbours against scikit-learn, by the operators' references."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array
from sklearn.neighbors import (
    KNeighborsClassifier,
    KNeighborsRegressor,
    LocalOutlierFactor,
    RadiusNeighborsClassifier,
    RadiusNeighborsRegressor,
)

from hbtvm.errors import InputError, ModelError, UnsupportedModel
from hbtvm.frontends import from_object
from tests.answers import same
from tests.frontends.predictors.data import NUMBERS, ROWS, TARGETS, X
from tests.frontends.predictors.oracle import check, found

METRICS: list[dict[str, Any]] = [
    {},
    {"algorithm": "brute", "metric": "euclidean"},
    {"p": 1},
    {"p": 3},
    {"p": 1.5, "metric_params": {"w": np.arange(1.0, 7.0)}},
    {"metric": "chebyshev"},
    {"metric": "cosine"},
    {"metric": "seuclidean", "metric_params": {"V": np.arange(1.0, 7.0)}, "algorithm": "brute"},
    {"metric": "mahalanobis", "metric_params": {"V": np.cov(X.T)}, "algorithm": "ball_tree"},
    {"metric": "mahalanobis", "metric_params": {"VI": np.linalg.inv(np.cov(X.T))}, "algorithm": "brute"},
]


@pytest.mark.parametrize("weights", ["uniform", "distance"])
@pytest.mark.parametrize("target", TARGETS)
def test_classifiers(target: str, weights: str) -> None:
    check(KNeighborsClassifier(6, weights=weights).fit(X, TARGETS[target]), ROWS)


@pytest.mark.parametrize("metric", METRICS)
def test_metrics(metric: dict[str, Any]) -> None:
    # Not rows of training, for which scikit-learn's expanded distances are not quite 0.
    rows = ROWS[:60]
    check(KNeighborsClassifier(5, weights="distance", **metric).fit(X, TARGETS["strings"]), rows)
    check(KNeighborsRegressor(3, **metric).fit(X, NUMBERS), rows)
    check(LocalOutlierFactor(7, novelty=True, **metric).fit(X), rows)


@pytest.mark.parametrize("weights", ["uniform", "distance"])
def test_several_targets(weights: str) -> None:
    both = np.stack([TARGETS["several"], TARGETS["binary"].astype(int)], axis=1)
    check(KNeighborsClassifier(6, weights=weights).fit(X, both), ROWS)
    for targets in (X[:, :2], X[:, :1], NUMBERS):
        check(KNeighborsRegressor(4, weights=weights).fit(X, targets), ROWS)
        check(RadiusNeighborsRegressor(8.0, weights=weights).fit(X, targets), X[::3])


@pytest.mark.parametrize("weights", ["uniform", "distance"])
@pytest.mark.parametrize("outlier", ["most_frequent", "green"])
def test_radius(outlier: str, weights: str) -> None:
    model = RadiusNeighborsClassifier(3.0, weights=weights, outlier_label=outlier)
    check(model.fit(X, TARGETS["strings"]), ROWS)


def test_rows_without_neighbours() -> None:
    far = np.full((1, 6), 1e3)
    graph = from_object(RadiusNeighborsClassifier(3.0).fit(X, TARGETS["strings"]))
    assert np.isnan(found(graph, far, "proba")).all()
    with pytest.raises(InputError, match="has no label"):
        found(graph, far)
    model = RadiusNeighborsRegressor(3.0).fit(X, NUMBERS)
    with pytest.warns(UserWarning, match="no neighbors"):
        expected = model.predict(far)
    same(found(from_object(model), far), expected, 0, 0)


def test_of_points_that_are_equally_far_the_first_count() -> None:
    points = np.array([[0.0], [1.0], [-1.0], [1.0], [-1.0], [5.0]])
    model = KNeighborsClassifier(3, algorithm="brute").fit(points, ["a", "b", "a", "c", "c", "c"])
    check(model, np.array([[0.0], [0.5], [4.0]]))


def test_contamination_moves_the_offset() -> None:
    model = LocalOutlierFactor(9, novelty=True, contamination=0.3).fit(X)
    assert set(model.predict(ROWS)) == {-1, 1}
    check(model, ROWS)


def test_sparse_points() -> None:
    model = KNeighborsClassifier(3).fit(csr_array(X), TARGETS["several"])
    same(found(from_object(model), ROWS[:60]), model.predict(ROWS[:60]), 0, 0)


def test_refusals() -> None:
    with pytest.raises(UnsupportedModel, match="a custom function as its weights"):
        from_object(KNeighborsClassifier(3, weights=lambda d: 1 / (d + 1)).fit(X, TARGETS["binary"]))
    with pytest.raises(UnsupportedModel, match="the KNeighborsRegressor has 'canberra' as its metric"):
        from_object(KNeighborsRegressor(3, metric="canberra").fit(X, NUMBERS))
    indefinite = {"VI": np.diag([1.0, -1.0, 1.0, 1.0, 1.0, 1.0])}
    model = KNeighborsRegressor(3, metric="mahalanobis", metric_params=indefinite, algorithm="brute")
    with pytest.raises(UnsupportedModel, match="not positive definite"):
        from_object(model.fit(X, NUMBERS))
    with pytest.raises(UnsupportedModel, match="novelty=False"):
        from_object(LocalOutlierFactor(3).fit(X))
    with pytest.raises(UnsupportedModel, match="outlier_label that is not a class"):
        from_object(RadiusNeighborsClassifier(3.0, outlier_label="none").fit(X, TARGETS["strings"]))
    model = KNeighborsClassifier(3).fit(X, TARGETS["binary"])
    model.n_neighbors = 1000
    with pytest.raises(ModelError, match="1000 neighbours of 150 points"):
        from_object(model)
