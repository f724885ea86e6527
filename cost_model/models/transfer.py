"""Transfer between workloads: global models corrected by a local one (AutoTVM, eq. 4)."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hbtvm.cost_model.base import CostModel, Prediction, Vector, centred, check, speeds_by_group

_ROWS = 256  # maximal number of measurements for the weight: more change little and cost much
_CHANCE = 0.3  # agreement that few measurements may show by chance; up to it, the weight is 0
_TIE = 0.03  # minimal relative difference of two costs; smaller differences are noise

_LARGEST = 4.0
"""Maximal factor from the spread of predictions to that of measured speeds. If a global model predicts the
same for all measured candidates, the factor would otherwise amplify its predictions for others."""


class TransferModel(CostModel):
    """Predicts w * global(x) + local(x): equation 4, with a weight on the global part.

    The global models are trained on other workloads and strategies. The local model is fitted to the current
    run's residuals. A weight w starts at 1. Each fit sets it to the global model's `agreement` with the
    measurements, in units of the measured speeds' spread. A model that orders them wrongly gets 0 after a few
    measurements.

    `sources`: fitted models, each with its own weight, whose mean counts; none for a first run.
    `local`: a cost model that can be fitted on a margin.
    """

    def __init__(self, sources: Sequence[CostModel], local: CostModel) -> None:
        self._sources = tuple(sources)
        self._local = local
        self._weights = np.ones(len(self._sources))

    @property
    def weight(self) -> float:
        """The largest weight of the global models."""
        return float(self._weights.max(initial=0.0))

    def fit(
        self,
        features: ArrayLike,
        costs: ArrayLike,
        groups: ArrayLike | None = None,
        margin: ArrayLike | None = None,
    ) -> None:
        """Weigh the global models by the data and fit the local model (see `CostModel.fit`)."""
        table, times, labels, base = check(features, costs, groups, margin)
        opinions = self._opinions(table)
        self._reweigh(opinions, times, labels)
        self._local.fit(table, times, labels, base + self._shared(opinions))

    def predict(self, features: ArrayLike) -> Prediction:
        """Predict speeds, with the local model's uncertainty (see `CostModel.predict`)."""
        return self._local.predict(features).plus(self._shared(self._opinions(features)))

    def believing(self, features: ArrayLike) -> TransferModel | None:
        """Return this model conditioned on its predictions (see `CostModel.believing`)."""
        local = self._local.believing(features)
        if local is None:
            return None
        more = copy(self)
        more._local = local
        return more

    def _reweigh(self, opinions: Vector, times: Vector, labels: NDArray[np.intp]) -> None:
        """Set the weights from the global models' predictions for measured candidates."""
        for i, scores in enumerate(opinions):
            agreed = max(0.0, agreement(scores, times, labels) - _CHANCE) / (1 - _CHANCE)
            self._weights[i] = _unit(scores, times, labels) * agreed

    def _opinions(self, features: ArrayLike) -> Vector:
        """Return each global model's predictions, (models, n)."""
        if not self._sources:
            return np.zeros((0, len(np.asarray(features))))
        return np.stack([model.mean(features) for model in self._sources])

    def _shared(self, opinions: Vector) -> Vector:
        weighed: Vector = (self._weights[:, None] * opinions).sum(axis=0) / max(len(opinions), 1)
        return weighed


def agreement(scores: Vector, costs: Vector, groups: NDArray[np.intp]) -> float:
    """Return how well scores order costs, from -1 (always wrong) to 1.

    This is the mean over all pairs within a group of 1 for the correct order, -1 for the wrong order and 0
    for costs within 3%, weighted by the difference of the scores. Failures come last; two failures are not a
    pair. Without pairs it is 1.
    """
    rows = np.random.default_rng(0).permutation(len(costs))[:_ROWS]
    score, cost, group = scores[rows], costs[rows], groups[rows]
    apart = score[:, None] - score[None, :]
    worked = np.isfinite(cost)
    shared = (group[:, None] == group[None, :]) & (worked[:, None] | worked[None, :])
    lower = shared & (cost[:, None] * (1 + _TIE) < cost[None, :])
    claimed = 0.5 * float(np.abs(apart[shared]).sum())
    return float(apart[lower].sum()) / claimed if claimed > 0.0 else 1.0


def _unit(scores: Vector, costs: Vector, groups: NDArray[np.intp]) -> float:
    """Return the spread of measured speeds, in log2, over that of the predictions, both within groups.

    Failures count as in `hbtvm.cost_model.base.relative_speeds`. Without variation it is 1.
    """
    goal = speeds_by_group(costs, groups)
    known = np.isfinite(goal)
    measured = float(goal[known] @ goal[known])
    spread = centred(scores, groups)[known]
    predicted = float(spread @ spread)
    if measured < 1e-12 or predicted < 1e-12:
        return 1.0
    return float(min(np.sqrt(measured / predicted), _LARGEST))
