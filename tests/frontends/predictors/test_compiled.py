"""Some of each family from the estimator to the package: kernels against scikit-learn."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.decomposition import KernelPCA
from sklearn.dummy import DummyRegressor
from sklearn.impute import KNNImputer
from sklearn.linear_model import LogisticRegression
from sklearn.mixture import GaussianMixture
from sklearn.naive_bayes import CategoricalNB, GaussianNB
from sklearn.neighbors import RadiusNeighborsRegressor
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import hbtvm
from hbtvm.errors import InputError
from tests.answers import METHODS, same
from tests.frontends.predictors.data import COUNTS, NEW_COUNTS, NUMBERS, ROWS, TARGETS, X

MODELS: dict[str, Any] = {
    "layers": make_pipeline(StandardScaler(), MLPClassifier((7,), max_iter=9, random_state=0)),
    "densities": make_pipeline(StandardScaler(), GaussianNB()),
    "mixture": GaussianMixture(3, random_state=0),
    "machine": make_pipeline(StandardScaler(), SVC(probability=True, random_state=0)),
    "kernels": make_pipeline(KernelPCA(3, kernel="rbf", gamma=0.02), LogisticRegression()),
    "centres": make_pipeline(StandardScaler(), KMeans(5, n_init=1, random_state=0)),
    "constant": DummyRegressor(),
    "radius": RadiusNeighborsRegressor(30.0, weights="distance"),
}


@pytest.mark.parametrize("name", MODELS)
def test_models(name: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = MODELS[name].fit(X, NUMBERS if name in ("constant", "radius") else TARGETS["strings"])
    compiled = hbtvm.compile(model, batch_sizes=64, dtype="float64", threads=1)
    for rows in (ROWS[:60], ROWS[:1]):
        same(compiled.predict(rows), model.predict(rows), 1e-9, 1e-11)
        for method in METHODS.values():
            if hasattr(model, method):
                same(getattr(compiled, method)(rows), getattr(model, method)(rows), 1e-9, 1e-11)


def test_imputed_rows() -> None:
    rng = np.random.default_rng(0)
    training = np.where(rng.random((150, 3)) < 0.2, np.nan, X[:, :3])
    rows = np.where(rng.random((60, 3)) < 0.4, np.nan, ROWS[:60, :3])
    model = make_pipeline(KNNImputer(n_neighbors=2, weights="distance"), LogisticRegression())
    model.fit(training, TARGETS["strings"])
    compiled = hbtvm.compile(model, batch_sizes=64, dtype="float64", threads=1)
    same(compiled.predict_proba(rows), model.predict_proba(rows), 1e-9, 1e-11)


def test_rows_without_a_label() -> None:
    model = CategoricalNB().fit(COUNTS, TARGETS["strings"])
    compiled = hbtvm.compile(model, batch_sizes=64, dtype="float64", threads=1)
    same(compiled.predict(NEW_COUNTS), model.predict(NEW_COUNTS), 0, 0)
    with pytest.raises(InputError, match="has no label"):
        compiled.predict(NEW_COUNTS + 1000.0)
