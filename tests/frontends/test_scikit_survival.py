"""scikit-survival's risk scores and times against the library."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import hbtvm
from hbtvm.errors import ModelError, UnsupportedModel
from hbtvm.frontends import from_object, load_model
from tests.frontends.predictors.oracle import found
from tests.oracle import edge_rows

pytest.importorskip("sksurv")
from sksurv.ensemble import (
    ComponentwiseGradientBoostingSurvivalAnalysis,
    ExtraSurvivalTrees,
    GradientBoostingSurvivalAnalysis,
    RandomSurvivalForest,
)
from sksurv.linear_model import CoxnetSurvivalAnalysis, CoxPHSurvivalAnalysis, IPCRidge
from sksurv.svm import FastKernelSurvivalSVM, FastSurvivalSVM, NaiveSurvivalSVM
from sksurv.tree import ExtraSurvivalTree, SurvivalTree
from sksurv.util import Surv

pytestmark = pytest.mark.filterwarnings("ignore")

RNG = np.random.default_rng(5)
X = RNG.normal(size=(150, 4))
TIME = np.round(np.exp(1.5 + X[:, 0] - 0.5 * X[:, 1] + 0.4 * RNG.normal(size=150)), 1) + 1.1
Y = Surv.from_arrays(RNG.random(150) < 0.7, TIME)


@pytest.mark.parametrize(
    "model",
    [
        CoxPHSurvivalAnalysis(alpha=0.1),
        CoxnetSurvivalAnalysis(n_alphas=5, normalize=True),
        IPCRidge(),
        FastSurvivalSVM(rank_ratio=1.0, random_state=0),
        FastSurvivalSVM(rank_ratio=0.4, fit_intercept=True, random_state=0),
        NaiveSurvivalSVM(random_state=0),
        ComponentwiseGradientBoostingSurvivalAnalysis(n_estimators=30, random_state=0),
        ComponentwiseGradientBoostingSurvivalAnalysis(loss="ipcwls", n_estimators=30, random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_linear_models(model: Any):
    graph = from_object(model.fit(X, Y))
    for rows in (X, X.astype(np.float32), np.round(X * 3).astype(np.int64)):
        np.testing.assert_allclose(found(graph, rows), model.predict(rows), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(
    "model",
    [
        SurvivalTree(max_depth=4),
        SurvivalTree(low_memory=True, max_leaf_nodes=8),
        ExtraSurvivalTree(max_depth=4, random_state=0),
        RandomSurvivalForest(n_estimators=7, random_state=0),
        RandomSurvivalForest(n_estimators=5, low_memory=True, max_depth=3, random_state=0),
        ExtraSurvivalTrees(n_estimators=5, random_state=0),
        GradientBoostingSurvivalAnalysis(n_estimators=15, random_state=0),
        GradientBoostingSurvivalAnalysis(loss="squared", n_estimators=9, dropout_rate=0.3, random_state=0),
        GradientBoostingSurvivalAnalysis(loss="ipcwls", n_estimators=9, subsample=0.7, random_state=0),
    ],
    ids=lambda model: type(model).__name__,
)
def test_trees(model: Any):
    model.fit(X, Y)
    graph = from_object(model)
    assert graph.input.allow_nan != isinstance(model, GradientBoostingSurvivalAnalysis)
    for dtype in ("float64", "float32"):
        rows = edge_rows(graph, dtype)
        np.testing.assert_allclose(found(graph, rows), model.predict(rows), rtol=1e-12)


def test_survival_from_risks():
    model = CoxPHSurvivalAnalysis().fit(X, Y)
    ours = np.exp(-model.cum_baseline_hazard_(5.0) * np.exp(found(from_object(model), X)))
    theirs = [function(5.0) for function in model.predict_survival_function(X)]
    np.testing.assert_allclose(ours, theirs, rtol=1e-9)


def test_missing_values_in_training():
    rows = np.where(RNG.random(X.shape) < 0.2, np.nan, X)
    model = RandomSurvivalForest(n_estimators=5, random_state=0).fit(rows, Y)
    np.testing.assert_allclose(found(from_object(model), rows), model.predict(rows), rtol=1e-12)


def test_a_file_in_a_pipeline_compiles(tmp_path: Path):
    model = make_pipeline(StandardScaler(), RandomSurvivalForest(n_estimators=5, random_state=0)).fit(X, Y)
    Path(tmp_path, "m.pkl").write_bytes(pickle.dumps(model))
    load_model(tmp_path / "m.pkl")
    compiled = hbtvm.compile(tmp_path / "m.pkl", batch_sizes=50, threads=1)
    np.testing.assert_allclose(compiled.predict(X), model.predict(X), rtol=1e-6)


def test_refusals():
    with pytest.raises(
        UnsupportedModel, match="sksurv's FastKernelSurvivalSVM is not supported: it searches"
    ):
        from_object(FastKernelSurvivalSVM(random_state=0).fit(X, Y))
    for model in (CoxPHSurvivalAnalysis(), RandomSurvivalForest()):
        with pytest.raises(UnsupportedModel, match="is not fitted"):
            from_object(model)
    tree = SurvivalTree(max_depth=2).fit(X, Y)
    tree.is_event_time_ = tree.is_event_time_[1:]
    with pytest.raises(ModelError, match=r"is damaged: its leaves have \d+ times"):
        from_object(tree)
