"""scikit-learn's rarer estimators of new rows, by the operators' references and the library."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.cluster import Birch
from sklearn.covariance import EllipticEnvelope
from sklearn.decomposition import MiniBatchSparsePCA, SparsePCA
from sklearn.ensemble import RandomForestClassifier
from sklearn.kernel_approximation import PolynomialCountSketch
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, SGDOneClassSVM
from sklearn.neural_network import BernoulliRBM
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.semi_supervised import LabelPropagation, LabelSpreading, SelfTrainingClassifier

import hbtvm
from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.frontends import from_object, pickles, registry
from tests.answers import same
from tests.frontends.predictors.data import NUMBERS, ROWS, TARGETS, X
from tests.frontends.predictors.oracle import check, found

SOME = np.where(np.arange(len(X)) % 3, -1, (X[:, 0] > 0) + 2 * (X[:, 1] > 1))
"""Labels of which most are unknown."""


def transformed(model: Any, rows: np.ndarray = ROWS) -> None:
    """Compare a model's ``transform``."""
    graph = from_object(model)
    # The library's distances to a row's own subcluster lose half of the digits.
    same(found(graph.transform or graph, rows), model.transform(rows), 1e-9, 1e-6)


@pytest.mark.parametrize("store", [True, False])
def test_elliptic_envelopes(store: bool) -> None:
    model = EllipticEnvelope(random_state=0, store_precision=store, contamination=0.2).fit(X)
    check(model, ROWS, rtol=1e-8)


@pytest.mark.parametrize("options", [{}, {"n_clusters": None}, {"n_clusters": 4, "threshold": 2.0}])
def test_birch(options: dict[str, Any]) -> None:
    model = Birch(**options).fit(X)
    check(model, ROWS)
    transformed(model)


def test_one_class_machines_by_gradient_descent() -> None:
    check(SGDOneClassSVM(nu=0.3, random_state=0).fit(X), ROWS)


@pytest.mark.parametrize("kernel", ["linear", "rbf", "poly", "sigmoid", "laplacian", "cosine", "polynomial"])
def test_kernel_ridge(kernel: str) -> None:
    check(
        KernelRidge(kernel=kernel, alpha=0.5).fit(X / 5, NUMBERS),
        ROWS / 5,
        rtol=1e-7,
        atol=1e-8,
        single=False,
    )


def test_kernel_ridge_in_other_forms() -> None:
    several = KernelRidge(kernel="rbf", gamma=0.1).fit(X, np.stack([NUMBERS, X[:, 0]], axis=1))
    check(several, ROWS, rtol=1e-8, atol=1e-8, single=False)
    check(KernelRidge(alpha=2.0).fit(X, NUMBERS[:, None]), ROWS, single=False)
    sparse = KernelRidge(kernel="rbf", gamma=0.2).fit(csr_matrix(X), NUMBERS)
    check(sparse, ROWS, rtol=1e-8, atol=1e-8, single=False)
    own = KernelRidge(kernel=lambda a, b: float(a @ b)).fit(X, NUMBERS)
    with pytest.raises(UnsupportedModel, match="has a custom function as its kernel"):
        from_object(own)
    with pytest.raises(UnsupportedModel, match="has 'chi2' as its kernel"):
        from_object(KernelRidge(kernel="chi2", gamma=1.0).fit(np.abs(X), NUMBERS))


@pytest.mark.parametrize(
    "model",
    [
        LabelPropagation(gamma=0.3),
        LabelSpreading(gamma=0.3, alpha=0.4),
        LabelPropagation("knn", n_neighbors=4, max_iter=3000),
        LabelSpreading("knn", n_neighbors=3),
    ],
)
def test_label_propagation(model: Any) -> None:
    with np.errstate(invalid="ignore"):
        check(model.fit(X, SOME), ROWS, rtol=1e-8)


def test_labels_far_from_all_rows() -> None:
    """The library divides zero by zero, and returns the first class."""
    model = LabelPropagation(gamma=20.0).fit(X, SOME)
    with np.errstate(invalid="ignore"):
        check(model, np.full((2, 6), 1e3))


@pytest.mark.parametrize(
    "inner", [LogisticRegression(), make_pipeline(StandardScaler(), LogisticRegression())]
)
def test_self_training(inner: Any) -> None:
    check(SelfTrainingClassifier(inner).fit(X, SOME), ROWS)


def test_self_training_of_trees_within_pipelines() -> None:
    forest = SelfTrainingClassifier(RandomForestClassifier(5, random_state=0)).fit(X, SOME)
    graph = from_object(forest)
    assert type(graph.anchor).__name__ == "TreeEnsemble"
    model = make_pipeline(StandardScaler(), SelfTrainingClassifier(LogisticRegression())).fit(X, SOME)
    check(model, ROWS)


@pytest.mark.parametrize(
    "model",
    [
        SparsePCA(3, random_state=0, max_iter=20),
        MiniBatchSparsePCA(8, random_state=0, max_iter=20, ridge_alpha=0.5),
        BernoulliRBM(5, random_state=0, n_iter=2),
        PolynomialCountSketch(random_state=0, n_components=16),
        PolynomialCountSketch(random_state=0, n_components=7, degree=3, coef0=2, gamma=0.3),
        PolynomialCountSketch(random_state=0, n_components=5, degree=1),
    ],
)
def test_transformers(model: Any) -> None:
    rows = X / 10 if isinstance(model, BernoulliRBM) else X
    model.fit(np.clip(rows, 0, 1) if isinstance(model, BernoulliRBM) else rows)
    transformed(model)
    record = pickles.from_live(model)
    assert isinstance(record, pickles.Record)


def test_in_front_of_a_model() -> None:
    """Compiled, with the kernel's own results."""
    model = make_pipeline(
        StandardScaler(), PolynomialCountSketch(random_state=0, n_components=16), LogisticRegression()
    ).fit(X, TARGETS["binary"])
    ours = hbtvm.compile(model, batch_sizes=100, threads=1)
    np.testing.assert_allclose(ours.predict_proba(ROWS), model.predict_proba(ROWS), rtol=1e-6)


@pytest.mark.parametrize(
    ("model", "change"),
    [
        (EllipticEnvelope(random_state=0), {"precision_": np.eye(3)}),
        (Birch(), {"subcluster_labels_": np.zeros(1, int)}),
        (SGDOneClassSVM(), {"coef_": np.ones((2, 6))}),
        (KernelRidge(), {"dual_coef_": np.ones(3)}),
        (LabelPropagation("knn", n_neighbors=4, max_iter=3000), {"n_neighbors": 10**6}),
        (PolynomialCountSketch(), {"indexHash_": np.full((2, 6), 1000)}),
        (SparsePCA(2, max_iter=20), {"components_": np.ones((2, 5))}),
        (BernoulliRBM(2, n_iter=1), {"intercept_hidden_": np.ones(3)}),
    ],
)
def test_damaged(model: Any, change: dict[str, Any]) -> None:
    record = pickles.from_live(model.fit(X, SOME))
    record.attributes.update(change)
    with pytest.raises(ModelError):
        registry.read(record)
