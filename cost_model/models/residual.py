"""Rank models with a Gaussian process on their residual."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hbtvm.cost_model.base import CostModel, Prediction, Vector, centred, check
from hbtvm.cost_model.models.gaussian_process import Bases, GaussianProcess

FOLDS = 4  # number of models of the local mean; each is fitted to all measurements except one fold
_FEWEST = 8  # minimal number of measurements for folds that can be ranked
GLOBAL = (0.8, 0.5)  # mean and variance of a global model's weight; several models share the mean
LOCAL = (0.5, 0.25)  # mean and variance of the local mean's weight


_KEPT = 1.25  # local models are kept until the rows exceed those of their fit by this factor


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows to which local models were fitted, with out-of-fold predictions."""

    table: NDArray[np.float32]
    times: Vector
    margin: Vector
    unseen: Vector

    def begins(self, more: _Rows) -> bool:
        """Return whether `more` starts with the same rows and adds few."""
        count = len(self.times)
        return count <= len(more.times) <= _KEPT * count and all(
            np.array_equal(mine, its[:count], equal_nan=True)
            for mine, its in ((self.table, more.table), (self.times, more.times), (self.margin, more.margin))
        )


class ResidualModel(CostModel):
    """Predicts ``sum_i w_i global_i(x) + w local(x) + residual(x)``: AutoTVM's equation 4 with a correction.

    The global models were fitted to other workloads' records. The local models are fitted to this run's. A
    Gaussian process is fitted to their residual and supplies the uncertainty. The weights are coefficients of
    its bases, learned with it: a global model that orders candidates wrongly loses its weight as soon as
    measurements show it.

    The local mean is that of `FOLDS` models, each fitted to all folds except one (cross-validated committee;
    Parmanto et al., 1996). Every measurement thus has an out-of-fold prediction; in-fold predictions would
    leave no residual to learn from.

    `sources`: fitted global models; none for a first run.
    `make`: creates an untrained local model from a seed, such as a `RankModel`.
    `process`: an unfitted process.
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

        The local models are kept if they were fitted to most of the rows; new rows are then out of fold for
        all of them.
        """
        table, times, labels, base = check(features, costs, groups, margin)
        predicted = self._global_means(table)
        local = self._unseen(table, times, labels, base + predicted @ _shared(predicted.shape[1]))
        several = predicted.shape[1]
        mean = np.append(_shared(several), [LOCAL[0]] * local.shape[1])
        variance = np.append(np.full(several, GLOBAL[1]), [LOCAL[1]] * local.shape[1])
        bases = Bases(np.concatenate([predicted, local], axis=1), mean, variance)
        self._process.fit(table, times, labels, base, bases)
        self._fitted = True

    def _unseen(
        self, table: NDArray[np.float32], times: Vector, labels: NDArray[np.intp], margin: Vector
    ) -> Vector:
        """Return the local models' out-of-fold predictions, (n, 1); (n, 0) with too few rows."""
        if len(table) < _FEWEST:
            self._local, self._rows = [], None
            return np.zeros((len(table), 0))
        rows = _Rows(table, times, margin, np.zeros(len(table)))
        if self._rows is None or not self._rows.begins(rows):
            fold = _folds(labels)
            self._local = []
            for number in range(FOLDS):
                held_out = fold == number
                model = self._make(number)
                model.fit(table[~held_out], times[~held_out], labels[~held_out], margin[~held_out])
                # Two models' predictions have no common zero.
                rows.unseen[held_out] = centred(model.predict(table).mean, labels)[held_out]
                self._local.append(model)
            self._rows = rows
        known = len(self._rows.unseen)
        rows.unseen[:known] = self._rows.unseen
        if known < len(table):
            rows.unseen[known:] = centred(self._locally(table), labels)[known:]
        return rows.unseen[:, None]

    @property
    def weights(self) -> Vector:
        """Expected weights of the global models, and of the local mean if there is one."""
        return self._process.coefficients

    def predict(self, features: ArrayLike) -> Prediction:
        """Predict speeds, with the process's uncertainty (see `CostModel.predict`)."""
        bases = self._bases(features)
        if not self._fitted:
            return Prediction(bases @ _shared(bases.shape[1]), np.ones(len(bases)))
        return self._process.predict(features, bases)

    def believing(self, features: ArrayLike) -> ResidualModel:
        """Return this model conditioned on its predictions (see `CostModel.believing`)."""
        if not self._fitted:
            return self
        more = copy(self)
        more._process = self._process.believing(features, self._bases(features))
        return more

    def _bases(self, features: ArrayLike) -> Vector:
        """Return the global models' predictions and, if fitted, the local mean, (n, k)."""
        predicted = self._global_means(features)
        if not self._local:
            return predicted
        return np.concatenate([predicted, self._locally(features)[:, None]], axis=1)

    def _locally(self, features: ArrayLike) -> Vector:
        """Return the mean of the local models' predictions, (n,)."""
        mean: Vector = np.mean([model.predict(features).mean for model in self._local], axis=0)
        return mean

    def _global_means(self, features: ArrayLike) -> Vector:
        """Return the global models' predictions, (n, models)."""
        if not self._sources:
            return np.zeros((len(np.asarray(features)), 0))
        return np.stack([model.mean(features) for model in self._sources], axis=1)


def _shared(count: int) -> Vector:
    """Return the expected weights of several global models."""
    return np.full(count, GLOBAL[0] / max(count, 1))


def _folds(labels: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return a fold for each row, (n,); each group's rows take turns."""
    place = np.empty(len(labels), dtype=np.intp)
    for group in np.unique(labels):
        members = np.flatnonzero(labels == group)
        place[members] = np.arange(len(members))
    return place % FOLDS
