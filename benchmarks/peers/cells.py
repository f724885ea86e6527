"""What is compared: models, data sets, rows per call, threads."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

MODELS = {
    "lightgbm": "LightGBM",
    "xgboost": "XGBoost",
    "forest": "RandomForest",
    "extra": "ExtraTrees",
    "hist": "HistGradientBoosting",
    "deep": "Deep RandomForest",
    "catboost-6": "CatBoost depth 6",
    "catboost-8": "CatBoost depth 8",
    "ydf": "YDF GradientBoostedTrees",
    "ydf-forest": "YDF RandomForest",
}
"""Kinds of models, and how a report calls them."""

LIBRARIES = {
    "lightgbm": "lightgbm",
    "xgboost": "xgboost",
    "forest": "scikit-learn",
    "extra": "scikit-learn",
    "hist": "scikit-learn",
    "deep": "scikit-learn",
    "catboost-6": "catboost",
    "catboost-8": "catboost",
    "ydf": "ydf",
    "ydf-forest": "ydf",
}
"""The package on an index that trains each kind."""

GRID = ("lightgbm", "xgboost", "forest", "extra", "hist", "deep")
"""Kinds of models that are measured unless others are named."""

DATA = ("fraud", "higgs", "year", "covtype", "epsilon", "airline")
ROWS = (1, 100, 10_000)
THREADS = (1, 2)

PAIRS = tuple(
    (model, data)
    for model, data in itertools.product(MODELS, DATA)
    # Unlimited depth only for data sets of two classes, where trees have thousands of leaves.
    if data in (("fraud", "higgs", "airline") if model == "deep" else DATA if model in GRID else ("higgs",))
)
"""The whole grid's models."""

QUICK = (
    ("lightgbm", "higgs"),
    ("xgboost", "higgs"),
    ("forest", "fraud"),
    ("lightgbm", "covtype"),
    ("xgboost", "year"),
    ("lightgbm", "epsilon"),
)
"""A subset that shows what the whole does."""


@dataclass(frozen=True, order=True)
class Cell:
    """One comparison: a model of a data set, so many rows of a type per call, so many threads."""

    model: str
    data: str
    rows: int
    threads: int
    dtype: str = "float32"

    @property
    def key(self) -> str:
        """Its name in the results."""
        text = f"{self.model} {self.data} {self.rows} {self.threads}"
        return text if self.dtype == "float32" else f"{text} {self.dtype}"

    @classmethod
    def from_key(cls, key: str) -> Cell:
        """The cell of a `key`."""
        model, data, rows, threads, *dtype = key.split()
        return cls(model, data, int(rows), int(threads), *dtype)

    @property
    def title(self) -> str:
        """Model and data set, for people."""
        text = f"{MODELS[self.model]} {self.data.capitalize()}"
        return text if self.dtype == "float32" else f"{text}, {self.dtype}"


def grid(
    pairs: Iterable[tuple[str, str]], rows: Sequence[int], threads: Sequence[int], dtype: str = "float32"
) -> dict[tuple[str, str], list[Cell]]:
    """Cells by model and data set, the unit that is trained and converted at once."""
    return {
        (model, data): [Cell(model, data, n, t, dtype) for t, n in itertools.product(threads, rows)]
        for model, data in pairs
    }
