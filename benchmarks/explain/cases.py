"""The models that are explained, their rows, and the cells of the benchmark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import catboost_model, higgs_like, lightgbm_model
from benchmarks.pipelines.data import adult
from benchmarks.pipelines.training import on_adult

ROWS = (1, 100, 10_000)
COLUMNS, TREES, ROWS_OF_FORESTS = 28, 500, 20_000


@dataclass(frozen=True)
class Case:
    """A model to explain.

    Attributes
    ----------
    title
        For people.
    fit
        Trains it.
    file
        Name of its file.
    peers
        Beside hbtvm, names of `benchmarks.explain.peers.PEERS`; the first is the one to agree with.
    rows
        Makes so many rows.
    method
        ``"explain"`` or ``"apply"``.
    """

    title: str
    fit: Callable[[], Any]
    file: str
    peers: tuple[str, ...]
    rows: Callable[[int], Any]
    method: str = "explain"


@dataclass(frozen=True)
class Cell:
    """What is timed in turns.

    `kind` is ``"explain"`` (hbtvm and its peers), ``"threads"`` (hbtvm with one and two threads) or
    ``"predict"`` (hbtvm's predictions by packages with and without reasons).
    """

    case: str
    kind: str
    rows: int

    @property
    def key(self) -> str:
        """Its name, such as ``"lightgbm/explain/100"``."""
        return f"{self.case}/{self.kind}/{self.rows}"


def _numbers(rows: int) -> np.ndarray:
    return higgs_like(rows, COLUMNS, 1)[0]


def _xgboost() -> Any:
    import xgboost

    X, y = higgs_like(50_000, COLUMNS, 0)
    options = {"objective": "binary:logistic", "max_depth": 8, "eta": 0.1, "seed": 0, "nthread": 1}
    return xgboost.train(options, xgboost.DMatrix(X, y), TREES)


def _forest(trees: int, depth: int | None) -> Any:
    """A regressor: one output, so that shap does the same work."""
    from sklearn.ensemble import RandomForestRegressor

    X, y = higgs_like(50_000, COLUMNS, 0)
    model = RandomForestRegressor(trees, max_depth=depth, max_features=1 / 3, random_state=0)
    return model.fit(X[:ROWS_OF_FORESTS], y[:ROWS_OF_FORESTS])


def _booster() -> Any:
    from lightgbm import LGBMClassifier

    return LGBMClassifier(n_estimators=TREES, verbose=-1, n_jobs=1, random_state=0)


def save(model: Any, path: Path) -> None:
    """Write a model as its library does, scikit-learn's as a pickle."""
    if path.suffix == ".pkl":
        import pickle

        path.write_bytes(pickle.dumps(model))
    else:
        model.save_model(str(path))


CASES = {
    "lightgbm": Case(
        "LightGBM, 500 trees of 31 leaves",
        lightgbm_model,
        "lightgbm.txt",
        ("lightgbm", "fasttreeshap"),
        _numbers,
    ),
    "xgboost": Case("XGBoost, 500 trees of depth 8", _xgboost, "xgboost.json", ("xgboost",), _numbers),
    "catboost": Case(
        "CatBoost, 500 trees of depth 6", catboost_model, "catboost.cbm", ("catboost",), _numbers
    ),
    "forest": Case(
        "random forest, 500 trees of depth 8",
        partial(_forest, TREES, 8),
        "forest.pkl",
        ("shap", "fasttreeshap"),
        _numbers,
    ),
    "deep": Case(
        "random forest, 100 trees of unlimited depth",
        partial(_forest, 100, None),
        "deep.pkl",
        ("shap", "fasttreeshap"),
        _numbers,
    ),
    "pipeline": Case(
        "impute, scale, one-hot of 14 columns, then 500 LightGBM trees",
        partial(on_adult, _booster),
        "pipeline.pkl",
        ("steps",),
        adult,
    ),
    "leaves": Case(
        "leaf ids, LightGBM, 500 trees of 31 leaves",
        lightgbm_model,
        "lightgbm.txt",
        ("lightgbm", "treelite"),
        _numbers,
        "apply",
    ),
}
"""By name."""


def cells() -> list[Cell]:
    """All cells: `ROWS` rows a call of each case, then threads and predictions of those with reasons."""
    reasons = [name for name, case in CASES.items() if case.method == "explain"]
    return [
        *(Cell(name, "explain", rows) for name in CASES for rows in ROWS),
        *(Cell(name, "threads", rows) for name in reasons for rows in ROWS[1:]),
        *(Cell(name, "predict", rows) for name in reasons for rows in (1, 10_000)),
    ]
