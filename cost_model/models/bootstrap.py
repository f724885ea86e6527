"""Uncertainty from a bootstrap of models (AutoTVM, section 3.3)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike

from hbtvm.cost_model.base import CostModel, Prediction, check

MODELS = 5  # number of models in a bootstrap, as in the paper


class Bootstrap(CostModel):
    """Several models, each fitted to a sample of the data drawn with replacement.

    `make`: creates an untrained model from a seed.
    """

    def __init__(self, make: Callable[[int], CostModel]) -> None:
        self._models = [make(seed) for seed in range(MODELS)]

    def fit(
        self,
        features: ArrayLike,
        costs: ArrayLike,
        groups: ArrayLike | None = None,
        margin: ArrayLike | None = None,
    ) -> None:
        """Fit each model to its own sample (see `CostModel.fit`)."""
        table, times, labels, base = check(features, costs, groups, margin)
        rng = np.random.default_rng(0)
        for model in self._models:
            rows = rng.integers(len(table), size=len(table))
            model.fit(table[rows], times[rows], labels[rows], base[rows])

    def predict(self, features: ArrayLike) -> Prediction:
        """Return mean and standard deviation of the models' predictions."""
        means = np.stack([model.predict(features).mean for model in self._models])
        return Prediction(means.mean(axis=0), means.std(axis=0))
