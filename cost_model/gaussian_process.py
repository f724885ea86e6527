"""A Gaussian process: mean and standard deviation of each candidate's speed, given measurements.

A search has a few dozen measurements of a space of thousands. Trees resolve few steps with so few; a
process predicts a mean and a standard deviation for each candidate, from which the acquisition follows.
Relevances are learned by block of features, such as one for each knob, since most of a space's knobs hardly
matter (`python -m benchmarks.search` has figures).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import solve_triangular
from scipy.optimize import minimize

from hbtvm.cost_model.base import Scores, check, clean, speeds_by_group

Table = NDArray[np.float64]

_STEPS = 12
"""Iterations of the optimiser: more change no choice of candidates."""

_TUNED_ON = 200
"""Measurements that relevances are learned from; each step's time goes with their square and more."""

_BLOCK = 4096
"""Candidates scored at a time: a space's tens of thousands would take gigabytes at once."""

_OFFSET = 0.1
"""Variance of a group's unknown mean, in units of the measurements' variance."""

_JITTER = 1e-5


@dataclass(frozen=True)
class FeatureSpace:
    """Units of distance between candidates.

    Attributes
    ----------
    widths
        Columns of each block of features, in order.
    mean, deviation
        Of each column, (D,), over candidates drawn at random: those that were measured are concentrated
        where the search expects the best, and vary too little.
    """

    widths: tuple[int, ...]
    mean: Table
    deviation: Table

    @classmethod
    def of(cls, table: NDArray[np.float32], widths: Sequence[int] | None = None) -> FeatureSpace:
        """The frame of a table of candidates, (n, D); without widths, all of it is one block."""
        if not len(table):
            table = np.zeros((1, table.shape[1]), dtype=np.float32)
        known = np.isfinite(table)
        count = np.maximum(known.sum(axis=0), 1)
        values = np.where(known, table, 0.0).astype(np.float64)
        mean = values.sum(axis=0) / count
        squares = np.where(known, values - mean, 0.0) ** 2
        return cls(tuple(widths or (table.shape[1],)), mean, np.sqrt(squares.sum(axis=0) / count))

    @property
    def owners(self) -> NDArray[np.intp]:
        """The block of each column, (D,)."""
        return np.repeat(np.arange(len(self.widths)), self.widths)

    def scaled(self, table: NDArray[np.float32]) -> Table:
        """Features in which two candidates drawn at random lie about 1 apart in each block.

        What does not vary is 0, and so is an unknown value, which counts as the mean.
        """
        moving = self.deviation > 1e-6
        varying = np.bincount(self.owners, moving, len(self.widths))[self.owners]
        factors = np.where(
            moving, 1.0 / np.sqrt(2.0 * np.maximum(self.deviation, 1e-6) ** 2 * np.maximum(varying, 1)), 0.0
        )
        # In float32, distances of 0 come out such that a covariance need not be positive.
        values: Table = (table.astype(np.float64) - self.mean) * factors
        return np.nan_to_num(values, copy=False)


class GaussianProcess:
    """Predicts log2 of the speed, relative to a group's mean, and its standard deviation (a `CostModel`).

    The covariance is Matérn's with smoothness 5/2 of the squared distance ``sum_b theta_b D_b``, where D_b is
    that of block b. The relevances theta and the noise maximise the posterior density (Rasmussen and
    Williams, 2006, equation 5.8, with normal priors on their logarithms); the scale of the
    covariance follows from them. Means of groups are unknowns of it, too.

    Parameters
    ----------
    frame
        Blocks and units of features; by default one block, in units of the data.
    most
        Measurements that are learned from; of more, the fastest of each group and a sample of the rest.
    seed
        Of that sample.
    """

    predicts_speeds = True
    """Scores are log2 of speeds: they mean the same for any data (see `transfer.TransferModel`)."""

    def __init__(self, *, frame: FeatureSpace | None = None, most: int = 500, seed: int = 0) -> None:
        self.frame, self.most, self.seed = frame, most, seed
        self._known: Table | None = None
        self._scale = 1.0
        self._variance = 1.0

    def fit(
        self,
        features: ArrayLike,
        costs: ArrayLike,
        groups: ArrayLike | None = None,
        margin: ArrayLike | None = None,
    ) -> None:
        """Learn log costs relative to each group's mean (see `CostModel.fit`).

        A failed candidate counts as twice as slow as the group's slowest. Groups without a
        success are left out.
        """
        table, times, labels, base = check(features, costs, groups, margin)
        self._known = None
        goal = speeds_by_group(times, labels)
        for group in np.unique(labels):
            own = labels == group
            goal[own] -= base[own] - base[own].mean()
        rows = self._chosen(goal, labels)
        spread = float(goal[rows].std()) if len(rows) else 0.0
        if spread < 1e-9:
            return
        self._scale = spread
        goal = goal / spread
        self._frame = self.frame or FeatureSpace.of(table)
        scaled = self._frame.scaled(table[rows])
        owners = self._frame.owners
        blocks = [scaled[:, owners == block] for block in range(len(self._frame.widths))]
        shared = labels[rows][:, None] == labels[rows][None, :]
        some = np.random.default_rng(self.seed).permutation(len(rows))[:_TUNED_ON]
        theta, self._noise = _relevances(
            [block[some] for block in blocks], goal[rows][some], shared[np.ix_(some, some)]
        )
        self._factors = np.sqrt(theta)[owners]
        known = scaled * self._factors
        covariance = _matern(_apart(known, known)) + _OFFSET * shared
        self._root = np.linalg.cholesky(covariance + (self._noise + _JITTER) * np.eye(len(rows)))
        half = solve_triangular(self._root, goal[rows], lower=True)
        self._weights = solve_triangular(self._root, half, lower=True, trans="T")
        self._variance = (float(half @ half) + 1) / (len(rows) + 1)
        self._known = known

    def predict(self, features: ArrayLike) -> Scores:
        """Score candidates, higher is better (see `CostModel.predict`)."""
        table = clean(features)
        if self._known is None:
            return np.zeros(len(table), dtype=np.float32)
        known, weights = self._known, self._scale * self._weights
        means = [_matern(_apart(self._placed(part), known)) @ weights for part in _parts(table)]
        return np.concatenate([np.empty(0), *means]).astype(np.float32)

    def expect(self, features: ArrayLike, believed: ArrayLike | None = None) -> tuple[Scores, Scores]:
        """Scores of candidates and their standard deviations, each (n,).

        Parameters
        ----------
        features
            float32, (n, D).
        believed
            float32, (m, D): candidates about to be measured, whose measurements are assumed to equal their
            means ("kriging believer"; Ginsbourger et al., 2010). The scores stay the same; standard
            deviations near these candidates fall.
        """
        table = clean(features)
        if self._known is None:
            return np.zeros(len(table), dtype=np.float32), np.ones(len(table), dtype=np.float32)
        root, known = self._root, self._known
        if believed is not None:
            root, known = self._extended(self._placed(clean(believed)))
        means, deviations = [np.empty(0)], [np.empty(0)]
        for part in _parts(table):
            near = _matern(_apart(self._placed(part), known))
            half = solve_triangular(root, near.T, lower=True, check_finite=False)
            left = np.maximum(1.0 - (half**2).sum(axis=0), 1e-9)
            means.append(near[:, : len(self._weights)] @ self._weights)
            deviations.append(np.sqrt(self._variance * left))
        mean, deviation = np.concatenate(means), np.concatenate(deviations)
        return (self._scale * mean).astype(np.float32), (self._scale * deviation).astype(np.float32)

    def _chosen(self, goal: Table, labels: NDArray[np.intp]) -> NDArray[np.intp]:
        """Rows to learn from: where there are too many, half of them the fastest of their groups."""
        rows = np.flatnonzero(np.isfinite(goal))
        if len(rows) <= self.most:
            return rows
        places = np.empty(len(rows), dtype=np.intp)
        for group in np.unique(labels[rows]):
            own = np.flatnonzero(labels[rows] == group)
            places[own[np.argsort(-goal[rows[own]], kind="stable")]] = np.arange(len(own))
        order = np.argsort(places, kind="stable")
        half = self.most // 2
        rest = np.random.default_rng(self.seed).permutation(order[half:])[: self.most - half]
        return np.sort(rows[np.concatenate([order[:half], rest])])

    def _placed(self, table: NDArray[np.float32]) -> Table:
        """Features in which squared distances are the kernel's."""
        return self._frame.scaled(table) * self._factors

    def _extended(self, more: Table) -> tuple[Table, Table]:
        """The Cholesky factor and rows with some more of a group of their own."""
        assert self._known is not None
        side = solve_triangular(self._root, _matern(_apart(self._known, more)), lower=True)
        own = _matern(_apart(more, more)) + (self._noise + _JITTER) * np.eye(len(more)) - side.T @ side
        corner = np.linalg.cholesky(own)
        top = np.concatenate([self._root, np.zeros_like(side)], axis=1)
        root = np.concatenate([top, np.concatenate([side.T, corner], axis=1)])
        return root, np.concatenate([self._known, more])


def _parts(table: NDArray[np.float32]) -> Iterator[NDArray[np.float32]]:
    for start in range(0, len(table), _BLOCK):
        yield table[start : start + _BLOCK]


def _apart(left: Table, right: Table) -> Table:
    """Squared distances between rows, (len(left), len(right))."""
    squares: Table = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1) - 2 * left @ right.T
    return np.maximum(squares, 0.0)


def _matern(apart: Table) -> Table:
    """Matérn's covariance with smoothness 5/2, of squared distances."""
    steps = np.sqrt(10.0 * apart)
    covariance: Table = (1.0 + steps + steps**2 / 3.0) * np.exp(-steps)
    return covariance


def _relevances(blocks: Sequence[Table], goal: Table, shared: NDArray[np.bool_]) -> tuple[Table, float]:
    """Relevance of each block, (B,), and variance of the noise, relative to the covariance's scale."""
    distances = np.stack([_apart(block, block) for block in blocks])
    count, size = len(blocks), len(goal)
    offset = _OFFSET * shared
    start = np.full(count + 1, -np.log(count))
    start[count] = -5.0
    widths = np.ones(count + 1)
    widths[count] = 2.0

    def loss(point: Table) -> tuple[float, Table]:
        """Negative logarithm of the posterior density but for a constant, and its gradient."""
        theta, noise = np.exp(point[:count]), float(np.exp(point[count]))
        steps = np.sqrt(10.0 * np.tensordot(theta, distances, 1))
        decay = np.exp(-steps)
        covariance = (1.0 + steps + steps**2 / 3.0) * decay + offset
        covariance[np.diag_indices(size)] += noise + _JITTER
        root = np.linalg.cholesky(covariance)
        inverse = np.linalg.inv(covariance)
        weights = inverse @ goal
        variance = (float(goal @ weights) + 1) / (size + 1)
        value = 0.5 * (size + 1) * np.log(variance) + float(np.log(np.diag(root)).sum())
        pull = 0.5 * (inverse - np.outer(weights, weights) / variance)
        # The covariance's derivative by a squared distance is -5/3 (1 + steps) exp(-steps).
        slopes = (-5.0 / 3.0) * pull * (1.0 + steps) * decay
        gradient = np.append(theta * np.tensordot(distances, slopes, 2), noise * np.trace(pull))
        away = (point - start) / widths
        return value + 0.5 * float(away @ away), gradient + away / widths

    bounds = [(-9.0, 5.0)] * count + [(-10.0, 1.0)]
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": _STEPS})
    return np.exp(found.x[:count]), float(np.exp(found.x[count]))
