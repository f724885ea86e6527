"""Models that rank, and a process of what they leave unexplained."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hbtvm.cost_model.base import CostModel, Prediction, Vector, centred, check
from hbtvm.cost_model.gaussian_process import Bases, GaussianProcess

FOLDS = 4
"""Models of the local mean; each is fitted to all measurements but a fourth of each group's."""

_FEWEST = 8
"""Measurements below which a fold leaves too few to rank by."""

GLOBAL = (0.8, 0.5)
"""Mean and variance of the global models' weight, if there is one; several share the mean."""

LOCAL = (0.5, 0.25)
"""Mean and variance of the local mean's weight."""


_KEPT = 1.25
"""Rows, relative to those that the local models were fitted to, up to which they are kept."""


@dataclass(frozen=True, eq=False)
class _Rows:
    """What local models were fitted to, and what they predict of rows that they have not seen."""

    table: NDArray[np.float32]
    times: Vector
    margin: Vector
    unseen: Vector

    def begins(self, more: _Rows) -> bool:
        """Whether others are the same rows, and few more."""
        count = len(self.times)
        return count <= len(more.times) <= _KEPT * count and all(
            np.array_equal(mine, its[:count], equal_nan=True)
            for mine, its in ((self.table, more.table), (self.times, more.times), (self.margin, more.margin))
        )


class ResidualModel(CostModel):
    """Predicts ``sum_i w_i global_i(x) + w local(x) + residual(x)``: AutoTVM's equation 4 and a correction.

    The global models were fitted to other workloads' records, the local ones are fitted to this run's. What
    they leave unexplained is a Gaussian process, which tells how sure a prediction is. The weights are
    learned with it, as coefficients of its bases: a global model that orders candidates wrongly loses its
    weight as soon as measurements tell.

    The local mean is that of `FOLDS` models, each fitted to the measurements of all folds but one
    (cross-validated committee; Parmanto et al., 1996). So every measurement has a prediction by a model that
    has not seen it: one that had would leave next to nothing to explain, whatever it is worth elsewhere.

    Parameters
    ----------
    sources
        Fitted global models; none for a first run.
    make
        Makes an untrained local model from a seed, such as a `hbtvm.cost_model.rank_xgboost.RankModel`.
    process
        An unfitted process.
    """

    def __init__(
        self, sources: Sequence[CostModel], make: Callable[[int], CostModel], process: GaussianProcess
    ) -> None:
        self._sources = tuple(sources)
        self._make = make
        self._local: list[CostModel] = []
        self._process = process
        self._fitted = False
        self._rows: _Rows | None = None

    def fit(
        self,
        features: ArrayLike,
        costs: ArrayLike,
        groups: ArrayLike | None = None,
        margin: ArrayLike | None = None,
    ) -> None:
        """Fit the local models, and the process with all weights (see `CostModel.fit`).

        The local models are kept while they have seen most rows, and these are the same: new ones are then
        unseen by all of them.
        """
        table, times, labels, base = check(features, costs, groups, margin)
        told = self._told(table)
        local = self._unseen(table, times, labels, base + told @ _shared(told.shape[1]))
        several = told.shape[1]
        mean = np.append(_shared(several), [LOCAL[0]] * local.shape[1])
        variance = np.append(np.full(several, GLOBAL[1]), [LOCAL[1]] * local.shape[1])
        bases = Bases(np.concatenate([told, local], axis=1), mean, variance)
        self._process.fit(table, times, labels, base, bases)
        self._fitted = True

    def _unseen(
        self, table: NDArray[np.float32], times: Vector, labels: NDArray[np.intp], margin: Vector
    ) -> Vector:
        """What local models that have not seen a row predict of it, (n, 1); (n, 0) of too few."""
        if len(table) < _FEWEST:
            self._local, self._rows = [], None
            return np.zeros((len(table), 0))
        rows = _Rows(table, times, margin, np.zeros(len(table)))
        if self._rows is None or not self._rows.begins(rows):
            fold = _folds(labels)
            self._local = []
            for number in range(FOLDS):
                own = fold == number
                model = self._make(number)
                model.fit(table[~own], times[~own], labels[~own], margin[~own])
                # Predictions of two models have no common zero.
                rows.unseen[own] = centred(model.predict(table).mean, labels)[own]
                self._local.append(model)
            self._rows = rows
        known = len(self._rows.unseen)
        rows.unseen[:known] = self._rows.unseen
        if known < len(table):
            rows.unseen[known:] = centred(self._locally(table), labels)[known:]
        return rows.unseen[:, None]

    @property
    def weights(self) -> Vector:
        """Expected weights of the global models, and of the local one where there is one."""
        return self._process.coefficients

    def predict(self, features: ArrayLike) -> Prediction:
        """Predict speeds; how sure that is the process says (see `CostModel.predict`)."""
        bases = self._bases(features)
        if not self._fitted:
            return Prediction(bases @ _shared(bases.shape[1]), np.ones(len(bases)))
        return self._process.predict(features, bases)

    def believing(self, features: ArrayLike) -> ResidualModel:
        """This model with some more candidates believed (see `CostModel.believing`)."""
        if not self._fitted:
            return self
        more = copy(self)
        more._process = self._process.believing(features, self._bases(features))
        return more

    def _bases(self, features: ArrayLike) -> Vector:
        """What the global models predict, and the mean of the local ones if there are any, (n, k)."""
        told = self._told(features)
        if not self._local:
            return told
        return np.concatenate([told, self._locally(features)[:, None]], axis=1)

    def _locally(self, features: ArrayLike) -> Vector:
        """Mean of what the local models predict, (n,)."""
        mean: Vector = np.mean([model.predict(features).mean for model in self._local], axis=0)
        return mean

    def _told(self, features: ArrayLike) -> Vector:
        """What the global models predict, (n, models)."""
        if not self._sources:
            return np.zeros((len(np.asarray(features)), 0))
        return np.stack([model.mean(features) for model in self._sources], axis=1)


def _shared(count: int) -> Vector:
    """Expected weights of several global models."""
    return np.full(count, GLOBAL[0] / max(count, 1))


def _folds(labels: NDArray[np.intp]) -> NDArray[np.intp]:
    """A fold for each row, (n,): those of a group in turn, so that each fold has some of each."""
    place = np.empty(len(labels), dtype=np.intp)
    for group in np.unique(labels):
        own = np.flatnonzero(labels == group)
        place[own] = np.arange(len(own))
    return place % FOLDS
