"""Small trained models of each kind that a service shows differently, and what their libraries answer."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
import pandas as pd
from sklearn.cluster import KMeans
from sklearn.compose import make_column_transformer
from sklearn.ensemble import IsolationForest, RandomForestClassifier, RandomForestRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeRegressor

import hbtvm
from tests.models import data, targets

ROWS = 9
"""Rows that are predicted."""

Rows = np.ndarray | pd.DataFrame | list[str]


@dataclass(frozen=True)
class Case:
    """A kind of models.

    Attributes
    ----------
    fit
        Trains one.
    rows
        What is predicted: float64 values that float32 holds, a frame, or texts.
    outputs
        What the service calls each output, and how the library's model makes it.
    """

    fit: Callable[[], Any]
    rows: Callable[[], Rows]
    outputs: Mapping[str, Callable[[Any, Any], Any]]

    @property
    def model(self) -> Any:
        """The library's."""
        return _fitted(self.fit)

    def write(self, path: Path) -> None:
        """Compile it."""
        hbtvm.compile(self.model, batch_sizes=1, threads=1).save(path)

    def expected(self, output: str) -> np.ndarray:
        """The library's answer."""
        return np.asarray(self.outputs[output](self.model, self.rows()))


@functools.cache
def _fitted(fit: Callable[[], Any]) -> Any:
    return fit()


def numbers() -> np.ndarray:
    """Rows of numbers."""
    rows: np.ndarray = data()[0][:ROWS].astype(np.float32).astype(np.float64)
    return rows


def frame(rows: int = ROWS) -> pd.DataFrame:
    """Rows of numbers and texts, none of them missing."""
    rng = np.random.default_rng(2)
    return pd.DataFrame(
        {
            "age": rng.normal(size=rows).round(1),
            "job": rng.choice(["law", "tech", "höher"], rows),
            "pay": rng.normal(size=rows).round(1),
            "plan": rng.choice(["a", "b"], rows),
        }
    )


def texts() -> list[str]:
    """Texts."""
    return ["good film", "a bad film", "good good plot", "bad", "", "naïve plot", "the film", "a", "plot bad"]


def _train(model: Any, target: str = "names") -> Callable[[], Any]:
    return lambda: model.fit(data()[0].astype(np.float32), targets(target))


def _named() -> Any:
    X = frame(200)[["age", "pay"]]
    return DecisionTreeRegressor(max_depth=3).fit(X, X["age"] + X["pay"])


def _pipeline() -> Any:
    X = frame(200)
    columns = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), ["age", "pay"]),
        (OneHotEncoder(handle_unknown="ignore"), ["job"]),
    )
    y = np.where((X["age"] > 0) ^ (X["job"] == "law"), "stays", "leaves")
    return make_pipeline(columns, LogisticRegression()).fit(X, y)


def _words() -> Any:
    return make_pipeline(TfidfVectorizer(), LogisticRegression()).fit(texts(), [1, 0, 1, 0, 0, 1, 1, 0, 0])


def _predict(model: Any, X: Any) -> Any:
    return model.predict(X)


def _proba(model: Any, X: Any) -> Any:
    return model.predict_proba(X)


def _decision(model: Any, X: Any) -> Any:
    return model.decision_function(X)


def _transform(model: Any, X: Any) -> Any:
    found = model.transform(X)
    return found.toarray() if hasattr(found, "toarray") else found


_BOTH = {"predict": _predict, "predict_proba": _proba}
_LIGHT = {"n_estimators": 6, "num_leaves": 9, "min_child_samples": 5, "verbose": -1, "n_jobs": 1}

CASES = {
    "binary": Case(
        _train(lgb.LGBMClassifier(**_LIGHT), "two"),
        numbers,
        {**_BOTH, "raw_score": lambda model, X: model.predict(X, raw_score=True)},
    ),
    "classes": Case(_train(RandomForestClassifier(3, max_depth=3, random_state=0)), numbers, _BOTH),
    "columns": Case(_named, lambda: frame()[["age", "pay"]], {"predict": _predict}),
    "targets": Case(
        _train(RandomForestRegressor(3, max_depth=3, random_state=0), "pair"), numbers, {"predict": _predict}
    ),
    "labels": Case(
        _train(RandomForestClassifier(3, max_depth=3, random_state=0), "pair_labels"),
        numbers,
        {
            "predict": _predict,
            "predict_proba_0": lambda model, X: model.predict_proba(X)[0],
            "predict_proba_1": lambda model, X: model.predict_proba(X)[1],
        },
    ),
    "anomalies": Case(
        _train(IsolationForest(n_estimators=5, random_state=0)),
        numbers,
        {
            "predict": _predict,
            "decision_function": _decision,
            "score_samples": lambda model, X: model.score_samples(X),
        },
    ),
    "pipeline": Case(_pipeline, frame, {**_BOTH, "decision_function": _decision}),
    "scaler": Case(_train(StandardScaler()), numbers, {"transform": _transform}),
    "encoder": Case(
        lambda: OneHotEncoder().fit(frame(200)[["job", "plan"]]),
        lambda: frame()[["job", "plan"]],
        {"transform": _transform},
    ),
    "clusters": Case(
        lambda: KMeans(3, random_state=0, n_init=1).fit(data()[0]),
        numbers,
        {"predict": _predict, "transform": _transform},
    ),
    "words": Case(_words, texts, _BOTH),
}
