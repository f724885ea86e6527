"""Clusterers and nearest centroids against scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array, csr_matrix
from sklearn.cluster import AffinityPropagation, BisectingKMeans, KMeans, MeanShift, MiniBatchKMeans
from sklearn.neighbors import NearestCentroid

from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.frontends import from_object
from tests.frontends.predictors.data import ROWS, TARGETS, X
from tests.frontends.predictors.oracle import check, found


@pytest.mark.parametrize(
    "model",
    [
        KMeans(7, n_init=1, random_state=0),
        KMeans(1, random_state=0),
        MiniBatchKMeans(5, n_init=1, random_state=0),
        BisectingKMeans(9, random_state=0),
        BisectingKMeans(1, random_state=0),
    ],
)
def test_means(model: Any) -> None:
    graph = check(model.fit(X), ROWS, single=False)
    # scikit-learn refuses rows of another type than it was fitted on.
    np.testing.assert_array_equal(found(graph, ROWS.astype(np.float32)), model.predict(ROWS))


@pytest.mark.parametrize("model", [MeanShift(bandwidth=3.0), AffinityPropagation(random_state=0)])
def test_nearest_centre(model: Any) -> None:
    check(model.fit(X[:80]), ROWS)


def test_without_centres_every_row_is_noise() -> None:
    model = AffinityPropagation(max_iter=1, random_state=0)
    with pytest.warns(Warning, match="did not converge"):
        model.fit(X)
    assert not model.cluster_centers_.size
    with pytest.warns(Warning, match="did not converge"):
        np.testing.assert_array_equal(found(from_object(model), ROWS), model.predict(ROWS))
    apart = -np.square(X[:20, None] - X[:20]).sum(axis=2)
    with pytest.raises(UnsupportedModel, match="precomputed"):
        from_object(AffinityPropagation(affinity="precomputed", random_state=0).fit(apart))


@pytest.mark.parametrize("kind", [csr_matrix, csr_array])
@pytest.mark.parametrize("converges", [True, False])
@pytest.mark.filterwarnings(
    "ignore:.*did not converge", "ignore:This model does not have any cluster centers"
)
def test_centres_that_are_sparse(kind: Any, converges: bool) -> None:
    thin = np.where(np.abs(X[:60]) > 2, X[:60], 0.0)
    model = AffinityPropagation(random_state=0, max_iter=200 if converges else 1).fit(kind(thin))
    assert hasattr(model.cluster_centers_, "toarray") and (model.cluster_centers_.shape[0] > 0) == converges
    for rows in (thin, np.zeros((2, 6)), ROWS):
        np.testing.assert_array_equal(found(from_object(model), rows), model.predict(rows))
        np.testing.assert_array_equal(found(from_object(model), rows), model.predict(kind(rows)))


def test_damaged_trees_of_clusters_are_refused() -> None:
    model = BisectingKMeans(4, random_state=0).fit(X)
    model._bisecting_tree.left.left = model._bisecting_tree
    model._bisecting_tree.left.right = model._bisecting_tree
    with pytest.raises(ModelError, match="has a loop"):
        from_object(model)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    "model",
    [
        NearestCentroid(),
        NearestCentroid(metric="manhattan"),
        NearestCentroid(shrink_threshold=0.3, priors="empirical"),
        NearestCentroid(metric="manhattan", priors="empirical"),
    ],
)
def test_nearest_centroids(model: Any, target: str) -> None:
    check(model.fit(X, TARGETS[target]), ROWS)
