"""The models whose predictions are timed: large and small work in one row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import higgs_like
from benchmarks.peers.train import trained


@dataclass(frozen=True)
class Case:
    """A model.

    Attributes
    ----------
    title
        For people.
    model
        What is compiled: an estimator, or a file.
    rows
        Rows to predict, float32.
    methods
        What is called.
    whole_goal
        Whether there is a goal for all that a call takes.
    """

    title: str
    model: Any
    rows: np.ndarray
    methods: tuple[str, ...]
    whole_goal: bool = False


def _of_peers(
    title: str, model: str, data: str, *methods: str, whole_goal: bool = False
) -> Callable[[Path], Case]:
    """A model of `benchmarks.peers`, trained if it is not in the cache."""

    def made(cache: Path) -> Case:
        about = trained(model, data, cache)
        return Case(title, about["path"], np.load(about["rows"]), methods, whole_goal)

    return made


def _of_sklearn(
    title: str, columns: int, estimator: Callable[[], Any], *methods: str
) -> Callable[[Path], Case]:
    def made(cache: Path) -> Case:
        X, y = higgs_like(30_000, columns, 0)
        return Case(title, estimator().fit(X[:20_000], y[:20_000]), X[20_000:], methods)

    return made


def _logistic() -> Any:
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression()


def _network() -> Any:
    from sklearn.neural_network import MLPClassifier

    return MLPClassifier((100,), max_iter=5, random_state=0)


def _small_forest() -> Any:
    from sklearn.ensemble import RandomForestClassifier

    return RandomForestClassifier(10, max_depth=5, random_state=0)


CASES: dict[str, Callable[[Path], Case]] = {
    "lightgbm": _of_peers("LightGBM, 500 × 31 leaves", "lightgbm", "higgs", "predict", whole_goal=True),
    "xgboost": _of_peers("XGBoost, 500 × depth 8", "xgboost", "higgs", "predict"),
    "forest": _of_peers("RandomForest, 500 × depth 8", "forest", "fraud", "predict", "predict_proba"),
    "classes": _of_peers("LightGBM, 7 classes × 500 × 31 leaves", "lightgbm", "covtype", "predict"),
    "small": _of_sklearn("RandomForest, 10 × depth 5", 10, _small_forest, "predict", "predict_proba"),
    "logistic": _of_sklearn("LogisticRegression, 10 columns", 10, _logistic, "predict", "predict_proba"),
    "network": _of_sklearn("MLPClassifier, 28 × 100 × 1", 28, _network, "predict", "predict_proba"),
}
"""By name, from the folder of trained models."""
