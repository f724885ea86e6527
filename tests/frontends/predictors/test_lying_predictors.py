"""Predictors and transformers whose attributes are anything at all: a graph or a clear refusal."""

from __future__ import annotations

import random
import warnings
from collections import Counter
from typing import Any

import numpy as np
import pytest
from sklearn.cluster import BisectingKMeans, KMeans
from sklearn.cross_decomposition import PLSRegression
from sklearn.decomposition import PCA, FactorAnalysis, KernelPCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis, QuadraticDiscriminantAnalysis
from sklearn.dummy import DummyClassifier
from sklearn.impute import KNNImputer
from sklearn.kernel_approximation import AdditiveChi2Sampler, Nystroem, RBFSampler
from sklearn.mixture import BayesianGaussianMixture, GaussianMixture
from sklearn.naive_bayes import BernoulliNB, CategoricalNB, GaussianNB, MultinomialNB
from sklearn.neighbors import (
    KNeighborsClassifier,
    LocalOutlierFactor,
    NearestCentroid,
    RadiusNeighborsClassifier,
)
from sklearn.neural_network import MLPClassifier
from sklearn.random_projection import SparseRandomProjection
from sklearn.svm import SVC, OneClassSVM

from tests.frontends.predictors.data import COUNTS, TARGETS
from tests.frontends.transformers.oracle import record_of
from tests.lying_records import is_read, put_junk


def estimators() -> list[Any]:
    rows, y = COUNTS[:60, :4], TARGETS["strings"][:60]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = [
            LinearDiscriminantAnalysis(), QuadraticDiscriminantAnalysis(reg_param=0.1), GaussianNB(),
            BernoulliNB(), MultinomialNB(), CategoricalNB(), MLPClassifier((3,), max_iter=2),
            KMeans(3, n_init=1), BisectingKMeans(3), GaussianMixture(2), BayesianGaussianMixture(),
            SVC(), SVC(probability=True), OneClassSVM(), DummyClassifier(), NearestCentroid(),
            KNeighborsClassifier(3, algorithm="brute"),
            RadiusNeighborsClassifier(9.0, outlier_label="blue", algorithm="brute"),
            LocalOutlierFactor(3, novelty=True, algorithm="brute"), PCA(2), FactorAnalysis(2),
            KernelPCA(2, kernel="rbf"), SparseRandomProjection(3), RBFSampler(n_components=4),
            AdditiveChi2Sampler(), Nystroem(n_components=5), KNNImputer(n_neighbors=2),
        ]  # fmt: skip
        return [*(one.fit(rows, y) for one in found), PLSRegression(2).fit(rows, rows[:, :2])]


ESTIMATORS = estimators()


@pytest.mark.parametrize("seed", range(3))
def test_any_attribute(seed: int) -> None:
    choose = random.Random(seed)
    outcomes: Counter[str] = Counter()
    for _ in range(150):
        record = record_of(choose.choice(ESTIMATORS))
        put_junk(record, choose)
        with np.errstate(all="ignore"):
            outcomes["read" if is_read(record) else "refused"] += 1
    assert min(outcomes["read"], outcomes["refused"]) > 20
