"""Transfer between workloads: global models helped by a local one (AutoTVM, eq. 4)."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cost_model.acquisition import expect, samples
from cost_model.base import CostModel, Scores, check, relative_speeds
from cost_model.blend import Blend

_ROWS = 256
"""Measurements that the weight is judged on: more would change little and cost much."""

_LARGEST = 4.0
"""Bound of a score's unit in measured ones: measured candidates may all look alike to a global model, and
others are not to be thought the faster for that."""


class Predictor(Protocol):
    """A model that was fitted elsewhere."""

    def predict(self, features: ArrayLike) -> Scores: ...


class TransferModel:
    """Scores w * global(x) + local(x): equation 4, with the global part on a leash.

    The global model knows other workloads and strategies. The local one is fitted to the
    current run's data on top of it. The weight w starts at 1 and is set, at each fit, to how well the
    global model orders what was measured (`agreement`); where the local model predicts speeds, in units of
    their spread. A model that misleads gets 0 as soon as a few measurements show it.

    Parameters
    ----------
    global_model
        A fitted model, or ``None`` for a first run. Of a `Blend` whose local model is none, the members are
        weighed one by one, and their mean counts.
    local
        Any cost model that can be fitted on a margin.
    """

    def __init__(self, global_model: Predictor | None, local: CostModel) -> None:
        self.local = local
        self._experts: tuple[Predictor, ...] = () if global_model is None else (global_model,)
        self._weights = np.ones(len(self._experts))
        if isinstance(global_model, Blend) and not isinstance(local, Blend):
            self._experts = global_model.members
            self._weights = 1.0 / np.array(global_model.spreads)

    @property
    def weight(self) -> float:
        """The largest weight of a global model; 1 where there is none."""
        return float(self._weights.max(initial=0.0)) if self._experts else 1.0

    def weigh(self, features: ArrayLike, costs: ArrayLike, groups: ArrayLike | None = None) -> float:
        """Set the global model's weight by measurements, and return it."""
        _, times, labels, _ = check(features, costs, groups, None)
        self._judge(self._opinions(features), times, labels)
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
        opinions = self._opinions(features)
        self._judge(opinions, times, labels)
        self.local.fit(table, times, labels, base + self._mean(opinions))

    def predict(self, features: ArrayLike) -> Scores:
        """Score candidates, higher is better (see `CostModel.predict`)."""
        scores: Scores = self._shared(features) + self.local.predict(features)
        return scores

    def samples(self, features: ArrayLike) -> NDArray[np.float32]:
        """Scores by each of the local models, (models, n); see `cost_model.acquisition`."""
        opinions: NDArray[np.float32] = self._shared(features) + samples(self.local, features)
        return opinions

    def expect(self, features: ArrayLike, believed: ArrayLike | None = None) -> tuple[Scores, Scores] | None:
        """Scores and their standard deviations, if the local model has such; see `cost_model.acquisition`."""
        found = expect(self.local, features, believed)
        return None if found is None else (self._shared(features) + found[0], found[1])

    def _judge(
        self, opinions: NDArray[np.float64], times: NDArray[np.float64], labels: NDArray[np.intp]
    ) -> None:
        """Set the weights by what the global models said of measurements."""
        in_speeds = getattr(self.local, "predicts_speeds", False)
        for i, scores in enumerate(opinions):
            unit = _unit(scores, times, labels) if in_speeds else 1.0
            self._weights[i] = unit * max(0.0, agreement(scores, times, labels))

    def _opinions(self, features: ArrayLike) -> NDArray[np.float64]:
        """What each global model says, (models, n)."""
        # They get the very table that came, by which a model may know it again.
        table = np.asarray(features)
        found = [np.nan_to_num(np.asarray(expert.predict(table))) for expert in self._experts]
        return np.array(found, dtype=np.float64).reshape(len(found), len(table))

    def _mean(self, opinions: NDArray[np.float64]) -> NDArray[np.float64]:
        weighed: NDArray[np.float64] = self._weights @ opinions / max(len(self._experts), 1)
        return weighed

    def _shared(self, features: ArrayLike) -> Scores:
        return self._mean(self._opinions(features)).astype(np.float32)


class TransferBlend(Blend):
    """A blend whose members each have a global model of their own kind."""

    def weigh(self, features: ArrayLike, costs: ArrayLike, groups: ArrayLike | None = None) -> float:
        """Set each member's weight by measurements; returns the largest."""
        return max(
            member.weigh(features, costs, groups)
            for member in self.members
            if isinstance(member, TransferModel)
        )


def transfer(global_model: CostModel | None, local: CostModel) -> TransferModel | TransferBlend:
    """Join a fitted global model, if there is one, and a local one."""
    if not isinstance(local, Blend):
        return TransferModel(global_model, local)
    if not isinstance(global_model, Blend):
        return TransferBlend([TransferModel(global_model, member) for member in local.members])
    pairs = zip(global_model.members, local.members, strict=True)
    return TransferBlend([TransferModel(one, own) for one, own in pairs], global_model.spreads)


def agreement(scores: NDArray[np.float64], costs: NDArray[np.float64], groups: NDArray[np.intp]) -> float:
    """How far scores order costs, from -1 (always wrongly) to 1.

    Over all pairs of one group whose costs differ, the mean of 1 for the right order and -1 for the wrong
    one, weighted by how far apart the pair's scores are: where scores differ little they claim little.
    Failures come last, in no order. Without such a pair it is 1.
    """
    rows = np.random.default_rng(0).permutation(len(costs))[:_ROWS]
    score, cost, group = scores[rows], costs[rows], groups[rows]
    apart = score[:, None] - score[None, :]
    pairs = (cost[:, None] < cost[None, :]) & (group[:, None] == group[None, :])
    claimed = float(np.abs(apart[pairs]).sum())
    return float(apart[pairs].sum()) / claimed if claimed > 0.0 else 1.0


def _unit(scores: NDArray[np.float64], costs: NDArray[np.float64], groups: NDArray[np.intp]) -> float:
    """Spread of the measured speeds, in log2, over that of the scores, both within groups.

    Failures count as in `cost_model.base.relative_speeds`. Where nothing varies it is 1.
    """
    measured = said = 0.0
    for group in np.unique(groups):
        rows = groups == group
        speeds = relative_speeds(costs[rows])
        if speeds is not None:
            measured += float(speeds @ speeds)
            said += float(((scores[rows] - scores[rows].mean()) ** 2).sum())
    if measured < 1e-12 or said < 1e-12:
        return 1.0
    return float(min(np.sqrt(measured / said), _LARGEST))
