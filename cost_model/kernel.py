"""A cost model for few measurements: kernel ridge regression on standardised features.

With a few dozen measurements trees can but tell steps apart, and all that fall in one leaf
are equal; a smooth function of the same features orders the candidates beyond the best
measured too, and is fitted in a tenth of the time. It minimises squares, so readings that are
off by a factor mislead it where they hardly touch ranks: the default blends it with a model of ranks.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cost_model.base import Scores, check, clean, relative_speeds

Table = NDArray[np.floating[Any]]

_BLOCK = 2048
"""Candidates scored at a time: a space's tens of thousands would take gigabytes at once."""


class KernelModel:
    """Predicts log2 of the speed, relative to a group's mean (a `CostModel`).

    The kernel is Gaussian: ``exp(-|x - y|^2 / (2 width^2 D))`` for D features of mean 0 and
    deviation 1.

    Parameters
    ----------
    width
        Distance over which candidates are alike, in units of that between two at random.
    ridge
        Variance of the noise, relative to that of the function.
    most
        Measurements that are learned from; of more a sample is drawn, as time goes with
        their cube.
    seed
        Of that sample.
    """

    predicts_speeds = True
    """Scores are log2 of speeds: they mean the same for any data (see `transfer.TransferModel`)."""

    def __init__(self, *, width: float = 4.0, ridge: float = 0.05, most: int = 1500, seed: int = 0) -> None:
        self.width, self.ridge, self.most, self.seed = width, ridge, most, seed
        self._known: Table | None = None

    def fit(
        self,
        features: ArrayLike,
        costs: ArrayLike,
        groups: ArrayLike | None = None,
        margin: ArrayLike | None = None,
    ) -> None:
        """Learn log costs relative to each group's mean (see `CostModel.fit`).

        A failed candidate counts as twice as slow as the group's slowest. Groups without a
        success teach nothing.
        """
        table, times, labels, base = check(features, costs, groups, margin)
        self._known = None
        rows = np.random.default_rng(self.seed).permutation(len(table))[: self.most]
        goal = np.full(len(table), np.nan)
        for group in np.unique(labels[rows]):
            own = rows[labels[rows] == group]
            speeds = relative_speeds(times[own])
            if speeds is not None:
                goal[own] = speeds - (base[own] - base[own].mean())
        rows = rows[np.isfinite(goal[rows])]
        if not goal[rows].any():
            return
        values = np.nan_to_num(table[rows]).astype(np.float64)
        self._mean, deviation = values.mean(axis=0), values.std(axis=0)
        self._moving = deviation > 1e-6
        self._deviation = deviation[self._moving]
        known = self._scaled(table[rows])
        alike = self._alike(known.astype(np.float64), known.astype(np.float64))
        self._weights = np.linalg.solve(alike + self.ridge * np.eye(len(known)), goal[rows])
        self._known = known

    def predict(self, features: ArrayLike) -> Scores:
        """Score candidates, higher is better (see `CostModel.predict`)."""
        table = clean(features)
        if self._known is None:
            return np.zeros(len(table), dtype=np.float32)
        parts = [table[start : start + _BLOCK] for start in range(0, len(table), _BLOCK)]
        # In float32 it takes half the time; candidates' order hardly depends on the rest.
        weights = self._weights.astype(np.float32)
        scores = [self._alike(self._scaled(part), self._known) @ weights for part in parts]
        return np.concatenate(scores or [np.empty(0)]).astype(np.float32)

    def _scaled(self, table: NDArray[np.float32]) -> Table:
        """Features that differ among the measurements, each with mean 0 and deviation 1."""
        values = np.nan_to_num(table[:, self._moving]) - self._mean[self._moving].astype(np.float32)
        return np.asarray(values / self._deviation.astype(np.float32))

    def _alike(self, left: Table, right: Table) -> Table:
        """The kernel between rows, (len(left), len(right))."""
        apart = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1) - 2 * left @ right.T
        scale = 2 * self.width**2 * max(left.shape[1], 1)
        return np.asarray(np.exp(-np.maximum(apart, 0.0) / scale))
