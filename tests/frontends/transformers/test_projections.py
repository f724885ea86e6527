"""Projections, kernel maps and distances to centres against scikit-learn, by the operators' references."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.cluster import BisectingKMeans, FeatureAgglomeration, KMeans
from sklearn.cross_decomposition import CCA, PLSSVD, PLSCanonical, PLSRegression
from sklearn.decomposition import PCA, FactorAnalysis, FastICA, IncrementalPCA, KernelPCA, TruncatedSVD
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.kernel_approximation import AdditiveChi2Sampler, Nystroem, RBFSampler, SkewedChi2Sampler
from sklearn.neighbors import NeighborhoodComponentsAnalysis
from sklearn.random_projection import GaussianRandomProjection, SparseRandomProjection

from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.frontends import from_object
from hbtvm.graph.columns.evaluate import evaluate
from tests.frontends.predictors.data import NUMBERS, ROWS, TARGETS, X
from tests.frontends.predictors.oracle import check
from tests.frontends.transformers.oracle import raw_of, table_of
from tests.staged import scores_of


def compare(model: Any, rows: np.ndarray = ROWS, single: bool = True) -> None:
    """Compare a fitted transformer's columns, and their names, with its library's."""
    for own, rtol in ((rows, 1e-9), (rows.astype(np.float32), 1e-5)):
        if own.dtype == np.float32 and not single:
            continue
        table, expected = table_of(model, rows.shape[1]), model.transform(own)
        assert table.names == tuple(model.get_feature_names_out())
        found = evaluate(table, raw_of(own), own.dtype.name)
        assert found.shape == expected.shape
        np.testing.assert_allclose(found, expected, rtol=rtol, atol=rtol * np.abs(expected).max())


@pytest.mark.parametrize(
    "model",
    [
        PCA(3),
        PCA(2, whiten=True),
        IncrementalPCA(3),
        TruncatedSVD(3, random_state=0),
        GaussianRandomProjection(4, random_state=0),
        SparseRandomProjection(4, random_state=0),
        FastICA(3, random_state=0, whiten="unit-variance"),
        FactorAnalysis(2),
        RBFSampler(n_components=7, random_state=0),
        NeighborhoodComponentsAnalysis(2, max_iter=3, random_state=0),
        FeatureAgglomeration(3),
    ],
)
def test_projections(model: Any) -> None:
    compare(model.fit(X, NUMBERS > 0))


def test_agglomerations_that_are_refused() -> None:
    model = FeatureAgglomeration(3, pooling_func=np.max).fit(X)
    with pytest.raises(UnsupportedModel, match=r"pools by numpy.max; supported is numpy.mean"):
        table_of(model, X.shape[1])
    model = FeatureAgglomeration(3).fit(X)
    for labels in ([0, 1, 2], [0, 1, 3, 3], [-1, 0, 1, 1], [0, 2**62, 1, 1]):
        model.labels_ = np.array(labels)
        with pytest.raises(ModelError, match="labels_ are not groups of its columns"):
            table_of(model, X.shape[1])


def test_independent_components_without_whitening() -> None:
    white = PCA(4, whiten=True).fit_transform(X)
    compare(FastICA(whiten=False, random_state=0, tol=1e-2).fit(white), white[:20])


@pytest.mark.parametrize(
    "model", [PLSRegression(2), PLSCanonical(2), CCA(1), PLSSVD(2), PLSRegression(3, scale=False)]
)
def test_partial_least_squares(model: Any) -> None:
    both = np.stack([NUMBERS, X[:, 1]], axis=1)
    compare(model.fit(X, both))
    if not isinstance(model, PLSSVD):
        check(model, ROWS)


def test_partial_least_squares_of_one_target() -> None:
    check(PLSRegression(2).fit(X, NUMBERS), ROWS)
    check(PLSRegression(2).fit(X, NUMBERS[:, None]), ROWS)


@pytest.mark.parametrize("solver", ["svd", "eigen"])
def test_linear_discriminants(solver: str) -> None:
    compare(LinearDiscriminantAnalysis(solver=solver).fit(X, TARGETS["strings"]))
    compare(LinearDiscriminantAnalysis(solver=solver, n_components=1).fit(X, TARGETS["several"]))


@pytest.mark.parametrize("model", [KMeans(5, n_init=1, random_state=0), BisectingKMeans(4, random_state=0)])
def test_distances_to_centres(model: Any) -> None:
    compare(model.fit(X), single=False)


@pytest.mark.parametrize("kernel", ["linear", "poly", "rbf", "sigmoid", "cosine"])
def test_kernel_pca(kernel: str) -> None:
    compare(KernelPCA(3, kernel=kernel, gamma=0.02, coef0=0.5, degree=2).fit(X))
    compare(KernelPCA(3, kernel=kernel).fit(X / 9), ROWS / 9)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_cosines_of_rows_that_are_nearly_zero(dtype: str) -> None:
    # Norms around ten roundings of 1, below which scikit-learn leaves rows as they are.
    points = X.astype(dtype)
    points[:3] *= np.array([[0.0], [1e-30], [1e-14]], dtype)
    around = 10 * np.finfo(dtype).eps / np.linalg.norm(ROWS[:20], axis=1, keepdims=True)
    rows = np.concatenate([ROWS[:20] * scale for scale in (0, 1e-30, *(around * f for f in (0.1, 0.9, 2)))])
    rows = rows.astype(dtype)
    for model in (KernelPCA(3, kernel="cosine"), Nystroem("cosine", n_components=3, random_state=0)):
        graph = from_object(model.fit(points))
        expected = model.transform(rows)
        tolerance = 1e-4 if dtype == "float32" else 1e-9
        np.testing.assert_allclose(scores_of(graph, rows), expected, rtol=tolerance, atol=tolerance)


def test_kernel_pca_of_precomputed_kernels() -> None:
    compare(KernelPCA(3, kernel="precomputed").fit(X @ X.T), ROWS @ X.T)


@pytest.mark.parametrize("kernel", ["linear", "poly", "polynomial", "rbf", "sigmoid", "cosine", "laplacian"])
def test_nystroem(kernel: str) -> None:
    compare(Nystroem(kernel, n_components=9, random_state=0).fit(X / 9), ROWS / 9)


def test_parameters_of_kernels() -> None:
    model = Nystroem("poly", gamma=0.01, degree=2.5, coef0=7.0, n_components=9, random_state=0)
    compare(model.fit(X / 9), ROWS / 9)


@pytest.mark.parametrize("steps", [1, 2, 3])
def test_additive_chi2(steps: int) -> None:
    rows = np.abs(ROWS)
    rows[0, :3] = 0.0
    compare(AdditiveChi2Sampler(sample_steps=steps).fit(np.abs(X)), rows)
    compare(AdditiveChi2Sampler(sample_steps=4, sample_interval=0.3).fit(np.abs(X)), rows)


def test_skewed_chi2() -> None:
    compare(SkewedChi2Sampler(skewedness=0.5, n_components=8, random_state=0).fit(np.abs(X)), np.abs(ROWS))


def test_refusals() -> None:
    with pytest.raises(UnsupportedModel, match="the Nystroem has 'chi2' as its kernel"):
        from_object(Nystroem("chi2", n_components=5).fit(np.abs(X)))
    with pytest.raises(UnsupportedModel, match="the KernelPCA has a custom function as its kernel"):
        from_object(KernelPCA(2).fit(X).set_params(kernel=lambda a, b: a @ b))
    with pytest.raises(UnsupportedModel, match="solver 'lsqr', with which scikit-learn does not transform"):
        table_of(LinearDiscriminantAnalysis(solver="lsqr").fit(X, TARGETS["binary"]), 6)
    model = TruncatedSVD(2).fit(X)
    model.components_ = model.components_[:, 1:]
    with pytest.raises(ModelError, match=r"components_ has the shape \(2, 5\)"):
        from_object(model)
