"""Transfer between workloads: a global model helped by a local one (AutoTVM, eq. 4)."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cost_model.acquisition import samples
from cost_model.base import CostModel, Scores, check, clean, relative_speeds
from cost_model.blend import Blend

_ROWS = 256
"""Measurements that the weight is judged on: more would change little and cost much."""


class Predictor(Protocol):
    """A model that was fitted elsewhere."""

    def predict(self, features: ArrayLike) -> Scores: ...


class TransferModel:
    """Scores w * global(x) + local(x): equation 4, with the global part on a leash.

    The global model knows other workloads and strategies. The local one is fitted to the
    current run's data on top of it. The weight w starts at 1 and is set, at each fit, to what the
    measurements bear out: where scores are speeds, to the slope of the measured ones over the global
    model's (`slope`), else to how well it orders them (`agreement`). A model that misleads gets 0 as
    soon as a few measurements show it.

    Parameters
    ----------
    global_model
        A fitted model, or ``None`` for a first run.
    local
        Any cost model that can be fitted on a margin.
    """

    def __init__(self, global_model: Predictor | None, local: CostModel) -> None:
        self.global_model = global_model
        self.local = local
        self.weight = 1.0

    def weigh(self, features: ArrayLike, costs: ArrayLike, groups: ArrayLike | None = None) -> float:
        """Set the global model's weight by measurements, and return it."""
        table, times, labels, _ = check(features, costs, groups, None)
        self._judge(self._global(table).astype(np.float64), times, labels)
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
        prior = self._global(table).astype(np.float64)
        self._judge(prior, times, labels)
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

    def _judge(
        self, prior: NDArray[np.float64], times: NDArray[np.float64], labels: NDArray[np.intp]
    ) -> None:
        """Set the weight by what the global model said of measurements."""
        if self.global_model is not None:
            judge = slope if getattr(self.local, "predicts_speeds", False) else agreement
            self.weight = max(0.0, judge(prior, times, labels))

    def _global(self, table: NDArray[np.float32]) -> Scores:
        if self.global_model is None:
            return np.zeros(len(table), dtype=np.float32)
        return np.nan_to_num(np.asarray(self.global_model.predict(table), dtype=np.float32))


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
    """Join a fitted global model, if there is one, and a local one of the same kind."""
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


def slope(scores: NDArray[np.float64], costs: NDArray[np.float64], groups: NDArray[np.intp]) -> float:
    """Least squares slope of the measured speeds over predicted ones, in log2, relative to each group's mean.

    Failures count as in `cost_model.base.relative_speeds`. Where nothing varies it is 1.
    """
    shared = varied = 0.0
    for group in np.unique(groups):
        rows = groups == group
        speeds = relative_speeds(costs[rows])
        if speeds is not None and np.ptp(speeds) > 0.0:
            own = scores[rows] - scores[rows].mean()
            shared += float(own @ speeds)
            varied += float(own @ own)
    return shared / varied if varied > 1e-12 else 1.0
