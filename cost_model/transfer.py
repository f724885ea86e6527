"""Transfer between workloads: global models helped by a local one (AutoTVM, eq. 4)."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hbtvm.cost_model.acquisition import expect, samples
from hbtvm.cost_model.base import CostModel, Scores, check, relative_speeds

_ROWS = 256
"""Most measurements that the weight is computed from: more would change little and cost much."""

_CHANCE = 0.3
"""Agreement that a few measurements may show by chance, and that counts for nothing."""

_TIE = 0.03
"""Least relative difference of two costs that counts as one; less is noise."""

_LARGEST = 4.0
"""Largest factor from the spread of scores to that of measured speeds: where a global model scores all
measured candidates alike, the factor would otherwise blow up the scores of the others."""


class Predictor(Protocol):
    """A model that was fitted elsewhere."""

    def predict(self, features: ArrayLike) -> Scores: ...


class TransferModel:
    """Scores w * global(x) + local(x): equation 4, with a weight on the global part.

    The global model is trained on other workloads and strategies. The local one is fitted to the
    current run's residuals. The weight w starts at 1 and is set, at each fit, to how well the
    global model orders what was measured (`agreement`); where the local model predicts speeds, in units of
    their spread. A model that orders them wrongly gets 0 after a few measurements.

    Parameters
    ----------
    global_model
        A fitted model, or ``None`` for a first run. The members of a `hbtvm.cost_model.blend.Blend` are
        weighed one by one, and their mean counts.
    local
        Any cost model that can be fitted on a margin.
    """

    def __init__(self, global_model: Predictor | None, local: CostModel) -> None:
        self.global_model = global_model
        self.local = local
        self._weights = np.ones(1)

    @property
    def weight(self) -> float:
        """The global model's weight, the largest where it has several members."""
        return float(self._weights.max())

    def weigh(self, features: ArrayLike, costs: ArrayLike, groups: ArrayLike | None = None) -> float:
        """Set the global model's weight by measurements, and return it."""
        _, times, labels, _ = check(features, costs, groups, None)
        self._reweigh(self._scores_by_member(features), times, labels)
        return self.weight

    def fit(
        self,
        features: ArrayLike,
        costs: ArrayLike,
        groups: ArrayLike | None = None,
        margin: ArrayLike | None = None,
    ) -> None:
        """Weigh the global model by the data and fit the local one (see `CostModel.fit`)."""
        table, times, labels, base = check(features, costs, groups, margin)
        scored = self._scores_by_member(features)
        self._reweigh(scored, times, labels)
        self.local.fit(table, times, labels, base + self._mean(scored))

    def predict(self, features: ArrayLike) -> Scores:
        """Score candidates, higher is better (see `CostModel.predict`)."""
        scores: Scores = self._shared(features) + self.local.predict(features)
        return scores

    def samples(self, features: ArrayLike) -> NDArray[np.float32]:
        """Scores by each of the local models, (models, n); see `hbtvm.cost_model.acquisition`."""
        found: NDArray[np.float32] = self._shared(features) + samples(self.local, features)
        return found

    def expect(self, features: ArrayLike, believed: ArrayLike | None = None) -> tuple[Scores, Scores] | None:
        """Scores and standard deviations, if the local model has such; see `hbtvm.cost_model.acquisition`."""
        found = expect(self.local, features, believed)
        return None if found is None else (self._shared(features) + found[0], found[1])

    def _reweigh(
        self, scored: NDArray[np.float64], times: NDArray[np.float64], labels: NDArray[np.intp]
    ) -> None:
        """Set the weights by the global model's scores of measured candidates."""
        if self.global_model is None:
            return
        in_speeds = getattr(self.local, "predicts_speeds", False)
        weights = np.ones(len(scored))
        for i, scores in enumerate(scored):
            unit = _unit(scores, times, labels) if in_speeds else 1.0
            weights[i] = unit * max(0.0, agreement(scores, times, labels) - _CHANCE) / (1 - _CHANCE)
        self._weights = weights

    def _scores_by_member(self, features: ArrayLike) -> NDArray[np.float64]:
        """Scores by the global model, or by each of its members, (models, n)."""
        if self.global_model is None:
            return np.zeros((1, len(np.asarray(features))))
        # The same object is passed on, since `Remembering` looks tables up by identity.
        return member_scores(self.global_model, features).astype(np.float64)

    def _mean(self, scored: NDArray[np.float64]) -> NDArray[np.float64]:
        weighed: NDArray[np.float64] = (self._weights[:, None] * scored).mean(axis=0)
        return weighed

    def _shared(self, features: ArrayLike) -> Scores:
        return self._mean(self._scores_by_member(features)).astype(np.float32)


class Remembering:
    """Caches a fitted model's scores of large tables.

    Parameters
    ----------
    model
        The model; it must not be fitted again.
    smallest, most
        Rows from which on a table is remembered, and number of tables.
    """

    def __init__(self, model: Predictor, smallest: int = 256, most: int = 64) -> None:
        self._model = model
        self._smallest, self._most = smallest, most
        self._answers: dict[int, tuple[NDArray[Any], NDArray[np.float32]]] = {}

    def predict(self, features: ArrayLike) -> Scores:
        """Mean over the members."""
        mean: Scores = self.member_scores(features).mean(axis=0)
        return mean

    def member_scores(self, features: ArrayLike) -> NDArray[np.float32]:
        """Scores by the model, or by each of its members, (models, n)."""
        table = np.asarray(features)
        known = self._answers.get(id(table))
        # The table itself is kept, too, so that no other can come to have its identity.
        if known is None or known[0] is not table:
            known = table, member_scores(self._model, table)
            if len(table) >= self._smallest:
                if len(self._answers) >= self._most:
                    self._answers.clear()
                self._answers[id(table)] = known
        return known[1]


def member_scores(model: Predictor, features: ArrayLike) -> NDArray[np.float32]:
    """Scores by a model, or by each member of a blend, (models, n)."""
    several = getattr(model, "member_scores", None)
    found = model.predict(features)[None] if several is None else several(features)
    return np.nan_to_num(np.asarray(found, dtype=np.float32))


def agreement(scores: NDArray[np.float64], costs: NDArray[np.float64], groups: NDArray[np.intp]) -> float:
    """How far scores order costs, from -1 (always wrongly) to 1.

    Over all pairs of one group, the mean of 1 for the right order, -1 for the wrong one and 0 where costs
    are the same but for 3%, weighted by the difference of the pair's scores. Failures come last, in no order;
    two of them are no pair. Without a pair it is 1.
    """
    rows = np.random.default_rng(0).permutation(len(costs))[:_ROWS]
    score, cost, group = scores[rows], costs[rows], groups[rows]
    apart = score[:, None] - score[None, :]
    worked = np.isfinite(cost)
    shared = (group[:, None] == group[None, :]) & (worked[:, None] | worked[None, :])
    lower = shared & (cost[:, None] * (1 + _TIE) < cost[None, :])
    claimed = 0.5 * float(np.abs(apart[shared]).sum())
    return float(apart[lower].sum()) / claimed if claimed > 0.0 else 1.0


def _unit(scores: NDArray[np.float64], costs: NDArray[np.float64], groups: NDArray[np.intp]) -> float:
    """Spread of the measured speeds, in log2, over that of the scores, both within groups.

    Failures count as in `hbtvm.cost_model.base.relative_speeds`. Where nothing varies it is 1.
    """
    measured = scored = 0.0
    for group in np.unique(groups):
        rows = groups == group
        speeds = relative_speeds(costs[rows])
        if speeds is not None:
            measured += float(speeds @ speeds)
            scored += float(((scores[rows] - scores[rows].mean()) ** 2).sum())
    if measured < 1e-12 or scored < 1e-12:
        return 1.0
    return float(min(np.sqrt(measured / scored), _LARGEST))
