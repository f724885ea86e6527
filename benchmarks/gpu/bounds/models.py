"""Trained models, with rows of their data sets, and what their kernels' scores have to be."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.common import catboost_model, higgs_like, lightgbm_model
from benchmarks.peers.train import trained
from hbtvm.compiler.candidates.tasks import forests_of
from hbtvm.frontends import load_model
from hbtvm.graph.trees.ensemble import TreeEnsemble
from hbtvm.graph.trees.reference import margins
from hbtvm.strategies import Forest

ROWS = 4096
"""Rows of a model that are read; larger batches repeat them."""

MODELS = ("leaves", "depth", "symmetric", "deep", "wide")
"""LightGBM with 31 leaves, XGBoost of depth 8, CatBoost of depth 6, a random forest without limits, LightGBM
of 2,000 features."""

TITLES = {
    "leaves": "LightGBM 31 leaves, 28 features",
    "depth": "XGBoost depth 8, 28 features",
    "symmetric": "CatBoost depth 6, 28 features",
    "deep": "Deep random forest, 28 features",
    "wide": "LightGBM 31 leaves, 2,000 features",
}

GOALS = {"leaves": 3.0, "depth": 3.0, "symmetric": 3.0, "deep": 1.5, "wide": 2.0}
"""How many times less than nvForest's a bound is meant to be, for a million rows."""


class WrongScores(Exception):
    """An interpreted kernel computed other scores than the model's."""


@dataclass
class Trained:
    """A model.

    Attributes
    ----------
    name
        One of `MODELS`.
    ensemble
        Its trees.
    forest
        The same, as kernels for rows of float32 on GPUs take it.
    X
        Rows, float32, shape (`ROWS`, F).
    """

    name: str
    ensemble: TreeEnsemble
    X: np.ndarray

    @cached_property
    def forest(self) -> Forest:
        """The forest that a package for a GPU has for float32 rows."""
        return forests_of(self.ensemble, "float32", complete=False, on_gpu=True)[0]

    @property
    def trees(self) -> int:
        """Trees of the model."""
        return len(self.ensemble.offset) - 1

    @cached_property
    def sums(self) -> np.ndarray:
        """Sums of leaf values for each row, float64, shape (`ROWS`, O)."""
        scores = margins(self.ensemble, self.X) - self.ensemble.base_score
        return np.asarray(scores * self.ensemble.divisor)

    def check(self, scores: np.ndarray) -> None:
        """Check that sums of leaf values, shape (n, O), are those of the rows in their order.

        Raises
        ------
        WrongScores
            If they are others.
        """
        rows = np.arange(min(len(scores), ROWS))
        want = self.sums[rows]
        wrong = ~np.isclose(scores[rows], want, rtol=1e-4, atol=1e-3 * max(1.0, float(np.abs(want).max())))
        if wrong.any():
            raise WrongScores(
                f"the interpreted kernel's scores of {wrong.any(1).sum()} of {len(rows)} rows are wrong"
            )


def get(name: str, cache: Path) -> Trained:
    """Return one of `MODELS`, trained, or found in the cache."""
    if name in ("leaves", "symmetric"):
        make, suffix = (lightgbm_model, "txt") if name == "leaves" else (catboost_model, "cbm")
        path, rows = cache / f"{name}.{suffix}", higgs_like(ROWS, 28, 9)[0]
        if not path.exists():
            cache.mkdir(parents=True, exist_ok=True)
            make().save_model(str(path))
        given: Any = path
    else:
        library, data = {
            "depth": ("xgboost", "higgs"),
            "deep": ("deep", "higgs"),
            "wide": ("lightgbm", "epsilon"),
        }[name]
        about = trained(library, data, cache)
        given, rows = about["path"], np.load(about["rows"])[:ROWS]
    graph = load_model(given)
    chosen = graph.single if graph.single is not None else graph.anchor
    assert isinstance(chosen, TreeEnsemble)
    return Trained(name, chosen, np.ascontiguousarray(rows, np.float32))
