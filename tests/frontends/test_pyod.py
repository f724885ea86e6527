"""PyOD's detectors against the library: scores, labels on the threshold, probabilities."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hbtvm
from hbtvm.errors import InputError, ModelError, UnsupportedModel
from hbtvm.frontends import from_object, load_model
from tests.frontends.predictors.oracle import found
from tests.oracle import edge_rows

pytest.importorskip("pyod")
from pyod.models import hbos
from pyod.models.copod import COPOD
from pyod.models.ecod import ECOD
from pyod.models.gmm import GMM
from pyod.models.hbos import HBOS
from pyod.models.iforest import IForest
from pyod.models.knn import KNN
from pyod.models.lof import LOF
from pyod.models.mcd import MCD
from pyod.models.ocsvm import OCSVM
from pyod.models.pca import PCA

pytestmark = pytest.mark.filterwarnings("ignore")

RNG = np.random.default_rng(6)
X = np.concatenate([RNG.normal(size=(180, 4)), 3 * RNG.normal(size=(20, 4))])
X[:, 3] = np.round(X[:, 3])


@pytest.fixture(autouse=True)
def uncompiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run HBOS without numba, whose compiler takes ten seconds."""
    for name in ("_calculate_outlier_scores", "_calculate_outlier_scores_auto"):
        monkeypatch.setattr(hbos, name, getattr(getattr(hbos, name), "py_func", getattr(hbos, name)))


@pytest.mark.parametrize(
    "model",
    [
        IForest(n_estimators=20, random_state=0),
        IForest(n_estimators=10, max_features=0.5, contamination=0.2, random_state=0),
        HBOS(),
        HBOS(n_bins=4, alpha=0.3, tol=0.1, contamination=0.15),
        HBOS(n_bins="auto", tol=0.01),
    ],
    ids=str,
)
def test_detectors(model: Any, tmp_path: Path):
    model.fit(X)
    Path(tmp_path, "m.pkl").write_bytes(pickle.dumps(model))
    graph = load_model(tmp_path / "m.pkl")
    assert graph.output.outputs == ("label", "proba", "decision")
    for rows in (X, X.astype(np.float32), edge_rows(graph, "float64"), edge_rows(graph, "float32")):
        np.testing.assert_allclose(found(graph, rows, "decision"), model.decision_function(rows), rtol=1e-11)
        np.testing.assert_array_equal(found(graph, rows), model.predict(rows))
        np.testing.assert_allclose(found(graph, rows, "proba"), model.predict_proba(rows), atol=1e-12)


def test_the_threshold_is_a_score():
    rows = np.repeat(X[-40:], 5, axis=0)
    model = HBOS(contamination=0.11).fit(rows)
    assert (model.decision_scores_ == model.threshold_).sum() > 1
    np.testing.assert_array_equal(found(from_object(model), rows), model.labels_)


@pytest.mark.parametrize(
    "model",
    [
        OCSVM(nu=0.2),
        LOF(n_neighbors=7),
        GMM(n_components=2, random_state=0),
        KNN(),
        KNN(n_neighbors=6, method="mean", metric="manhattan"),
        KNN(n_neighbors=4, method="median", contamination=0.05),
        PCA(),
        PCA(n_components=3, n_selected_components=2, standardization=False),
        PCA(weighted=False),
        MCD(random_state=0),
    ],
    ids=str,
)
def test_detectors_around_estimators(model: Any, tmp_path: Path):
    model.fit(X)
    Path(tmp_path, "m.pkl").write_bytes(pickle.dumps(model))
    graph = load_model(tmp_path / "m.pkl")
    assert graph.input.n_features == 4
    # Training rows are at distance 0 of a neighbour, which PyOD computes in one way or the other.
    rows = np.concatenate([X + 1e-3, 4 * X, 1e3 * X[:5]])
    scores = model.decision_function(rows)
    np.testing.assert_allclose(found(graph, rows, "decision"), scores, rtol=1e-9, atol=1e-12)
    np.testing.assert_array_equal(found(graph, rows), model.predict(rows))
    np.testing.assert_allclose(found(graph, rows, "proba"), model.predict_proba(rows), atol=1e-9)


def test_a_detector_is_compiled():
    model = KNN(n_neighbors=3).fit(X)
    compiled = hbtvm.compile(model, batch_sizes=1, threads=1)
    np.testing.assert_array_equal(compiled.predict(X + 0.01), model.predict(X + 0.01))
    with pytest.raises(InputError, match="NaN"):
        compiled.predict(X * np.nan)
    with pytest.raises(UnsupportedModel, match="novelty=False"):
        from_object(LOF(novelty=False).fit(X))
    with pytest.raises(UnsupportedModel, match="is not fitted"):
        from_object(KNN())


@pytest.mark.parametrize("kind", [ECOD, COPOD])
def test_detectors_that_look_at_other_rows_are_refused(kind: Any):
    with pytest.raises(UnsupportedModel, match=f"pyod's {kind.__name__} is not supported: a row's score dep"):
        from_object(kind().fit(X))


def test_damaged_and_unfitted():
    with pytest.raises(UnsupportedModel, match="is not fitted"):
        from_object(HBOS())
    model = HBOS().fit(X)
    edges = model.bin_edges_
    model.bin_edges_ = edges[::-1].copy()
    with pytest.raises(ModelError, match="do not rise"):
        from_object(model)
    model.bin_edges_ = edges[:, 1:]
    with pytest.raises(ModelError, match="another number of columns"):
        from_object(model)
    model = IForest(n_estimators=2).fit(X)
    model.contamination = object()
    with pytest.raises(UnsupportedModel, match="set it to a number"):
        from_object(model)
