"""XGBoost's ``gblinear`` against XGBoost: documents, live models, missing values, and steps in front."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xgboost as xgb
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

import hbtvm
from hbtvm.comparison.library import Live
from hbtvm.errors import ModelError
from hbtvm.frontends import from_object, load_model
from hbtvm.frontends.xgboost.model import from_document
from hbtvm.graph.graph import Graph

RNG = np.random.default_rng(0)
X = RNG.normal(size=(150, 4)).astype(np.float32)
X[RNG.random(X.shape) < 0.1] = np.nan
TARGET = np.nan_to_num(X[:, 0]) * 2 - np.nan_to_num(X[:, 1]) + 1
CLASSES = (TARGET > 0).astype(int) + (TARGET > 2)
OBJECTIVES: dict[str, Any] = {
    "reg:squarederror": TARGET,
    "reg:gamma": np.exp(TARGET / 4),
    "binary:logistic": (TARGET > 0).astype(int),
    "multi:softprob": CLASSES,
    "multi:softmax": CLASSES,
}


def answers(graph: Graph, rows: np.ndarray, output: str | None = None) -> Any:
    anchor: Any = graph.anchor
    return graph.output.compute(output, anchor.reference(rows))


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_boosters(objective: str, tmp_path: Path) -> None:
    classes = {"num_class": 3} if objective.startswith("multi") else {}
    booster = xgb.train(
        {"booster": "gblinear", "objective": objective, "nthread": 1, **classes},
        xgb.DMatrix(X, OBJECTIVES[objective]),
        5,
    )
    booster.save_model(tmp_path / "model.json")
    booster.save_model(tmp_path / "model.ubj")
    expected = booster.predict(xgb.DMatrix(X))
    raw = booster.predict(xgb.DMatrix(X), output_margin=True)
    # The comparison calls a booster in a way that linear boosters know.
    library = Live(booster, ("predict", "raw"), 1)
    library.take(X)
    np.testing.assert_array_equal(library.result("predict"), expected)
    library.close()
    for source in (tmp_path / "model.json", tmp_path / "model.ubj", booster):
        graph = load_model(source)
        np.testing.assert_allclose(answers(graph, X), expected, rtol=1e-6, atol=1e-6)
        np.testing.assert_allclose(answers(graph, X, "raw"), raw, rtol=1e-6, atol=1e-6)


def test_estimators_and_a_missing_value() -> None:
    rows = np.where(np.isnan(X), np.float32(-999), X)
    model = xgb.XGBClassifier(booster="gblinear", n_estimators=4, missing=-999, n_jobs=1).fit(rows, CLASSES)
    compiled = hbtvm.compile(model, batch_sizes=100, threads=1)
    for given in (rows, rows.astype(np.float64)):
        np.testing.assert_array_equal(compiled.predict(given), model.predict(rows))
        expected = model.predict_proba(rows)
        np.testing.assert_allclose(compiled.predict_proba(given), expected, rtol=1e-6, atol=1e-7)
    # Infinite values are XGBoost's error.
    with pytest.raises(hbtvm.InputError, match="inf"):
        compiled.predict(np.full((1, 4), np.inf, np.float32))


def test_behind_a_scaler() -> None:
    model = make_pipeline(MinMaxScaler(), xgb.XGBRegressor(booster="gblinear", n_estimators=4, n_jobs=1))
    model.fit(X, TARGET)
    graph = from_object(model)
    np.testing.assert_allclose(answers(graph, X.astype(np.float64)), model.predict(X), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("weights", [[], [1.0] * 4, [1.0] * 6, [float("nan")] * 5, ["x"] * 5, None, 3, {}])
def test_damaged_documents(weights: Any) -> None:
    booster = xgb.train({"booster": "gblinear", "nthread": 1}, xgb.DMatrix(X, TARGET), 1)
    document = json.loads(booster.save_raw("json"))
    document["learner"]["gradient_booster"]["model"]["weights"] = weights
    with pytest.raises(ModelError, match="damaged"):
        from_document(document)
