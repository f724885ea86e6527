"""Transfer between workloads: a global model helped by a local one (AutoTVM, eq. 4)."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cost_model import rank_loss
from cost_model.acquisition import samples
from cost_model.base import CostModel, Scores, check, clean

_WEIGHTS = np.linspace(0.0, 1.0, 21)
_ROWS = 256
"""Measurements that the weight is judged on: more would change little and cost much."""


class Predictor(Protocol):
    """A model that was fitted elsewhere."""

    def predict(self, features: ArrayLike) -> Scores: ...


class TransferModel:
    """Scores w * global(x) + local(x): equation 4, with the global part on a leash.

    The global model knows other workloads and strategies. The local one is fitted to the
    current run's data on top of it. The weight w starts at 1 and is set, at each fit, to
    what makes the global model's own ranking of the measurements most likely (least rank
    loss) under a prior that holds it near 1: evidence that it misleads takes w to 0.

    Parameters
    ----------
    global_model
        A fitted model, or ``None`` for a first run.
    local
        Any cost model that can be fitted on a margin.
    trust
        Strength of the prior, in measurements: about so many are needed to overrule it.
    """

    def __init__(self, global_model: Predictor | None, local: CostModel, *, trust: float = 8.0) -> None:
        self.global_model = global_model
        self.local = local
        self.trust = trust
        self.weight = 1.0

    def fit(
        self,
        features: ArrayLike,
        costs: ArrayLike,
        groups: ArrayLike | None = None,
        margin: ArrayLike | None = None,
    ) -> None:
        """Weigh the global model by the data and fit the local one (see `CostModel.fit`)."""
        table, times, labels, base = check(features, costs, groups, margin)
        prior = self._global(table).astype(np.float64)
        self.weight = 1.0
        if self.global_model is not None:
            self.weight = best_weight(prior, times, labels, self.trust)
        self.local.fit(table, times, labels, base + self.weight * prior)

    def predict(self, features: ArrayLike) -> Scores:
        """Score candidates, higher is better (see `CostModel.predict`)."""
        table = clean(features)
        scores: Scores = np.float32(self.weight) * self._global(table) + self.local.predict(table)
        return scores

    def samples(self, features: ArrayLike) -> NDArray[np.float32]:
        """Scores by each of the local models, (models, n); see `cost_model.acquisition`."""
        table = clean(features)
        shared = np.float32(self.weight) * self._global(table)
        opinions: NDArray[np.float32] = shared + samples(self.local, table)
        return opinions

    def _global(self, table: NDArray[np.float32]) -> Scores:
        if self.global_model is None:
            return np.zeros(len(table), dtype=np.float32)
        return np.nan_to_num(np.asarray(self.global_model.predict(table), dtype=np.float32))


def best_weight(
    scores: NDArray[np.float64], costs: NDArray[np.float64], groups: NDArray[np.intp], trust: float
) -> float:
    """Weight in [0, 1] under which scores best explain the order of costs.

    It minimises ``rank loss(w * scores) + trust / 2 * (w - 1)^2``; the loss grows with the
    number of measurements, so the prior fades. Without a pair of different costs it is 1.
    """
    rows = np.random.default_rng(0).permutation(len(costs))[:_ROWS]
    score, cost = scores[rows], costs[rows]
    parts = list(rank_loss.blocks(cost, groups[rows], _ROWS, np.random.default_rng(0)))
    parts = [block for block in parts if len(block)]
    penalty = trust / 2 * (_WEIGHTS - 1.0) ** 2
    losses = [rank_loss.loss(weight * score, cost, parts) for weight in _WEIGHTS]
    # The last of equals, so that scores which say nothing keep the prior's weight.
    return float(_WEIGHTS[::-1][np.argmin((np.array(losses) + penalty)[::-1])])
