"""A Gaussian process: mean and standard deviation of each candidate's speed.

A search has a few dozen measurements of a space of thousands. Trees resolve few steps with so few
measurements; a process predicts a mean and a standard deviation for each candidate, from which the
acquisition follows.

Relevances are learned by block of features, such as one for each knob, since most knobs hardly matter
(`python -m benchmarks.search` has figures).
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.linalg import solve_triangular
from scipy.optimize import minimize

from hbtvm.cost_model.base import CostModel, Prediction, centred, check, clean, speeds_by_group

Table = NDArray[np.float64]

_STEPS = 12  # iterations of the optimiser; more do not change which candidates are chosen
_TUNED_ON = 200  # measurements from which relevances are learned; a step takes more than quadratic time

_BLOCK = 4096
"""Candidates per block of scoring, to bound memory: a space's tens of thousands would take gigabytes."""

_OFFSET = 0.1  # variance of a group's unknown mean, in units of the measurements' variance

_JITTER = 1e-5


@dataclass(frozen=True)
class FeatureSpace:
    """Units of distance between candidates."""

    widths: tuple[int, ...]  # columns of each block of features, in order
    # `mean`, `deviation`: of each column, (D,), over random candidates. Measured candidates cluster where the
    # search expects the best, and vary too little.
    mean: Table
    deviation: Table

    @classmethod
    def of(cls, table: NDArray[np.float32], widths: Sequence[int] | None = None) -> FeatureSpace:
        """Return the units of a table of candidates, (n, D); without widths, all columns are one block."""
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
        """Scale features so that two random candidates lie about 1 apart in each block.

        Constant columns become 0, and so do unknown values, which count as the mean.
        """
        moving = self.deviation > 1e-6
        varying = np.bincount(self.owners, moving, len(self.widths))[self.owners]
        factors = np.where(
            moving, 1.0 / np.sqrt(2.0 * np.maximum(self.deviation, 1e-6) ** 2 * np.maximum(varying, 1)), 0.0
        )
        # With float32, rounding at distance 0 can make a covariance indefinite.
        values: Table = (table.astype(np.float64) - self.mean) * factors
        return np.nan_to_num(values, copy=False)


@dataclass(frozen=True)
class Bases:
    """Other models' predictions, each with an unknown coefficient.

    The coefficients are independent and normally distributed. They are learned with the process, and their
    uncertainty adds to the prediction's (Rasmussen and Williams, 2006, equation 2.40).
    """

    values: Table  # log2 speeds, (n, k)
    # `mean`, `variance`: prior of each coefficient, (k,)
    mean: Table
    variance: Table

    @classmethod
    def none(cls, n: int) -> Bases:
        """Return no bases, for n candidates."""
        return cls(np.zeros((n, 0)), np.zeros(0), np.zeros(0))

    @property
    def count(self) -> int:
        """Number of bases."""
        return int(self.values.shape[1])


class GaussianProcess(CostModel):
    """Predicts log2 of the speed, relative to a group's mean, and its standard deviation.

    The covariance is Matérn's with smoothness 5/2 of the squared distance ``sum_b theta_b D_b``, where D_b is
    the squared distance in block b. The relevances theta and the noise maximise the posterior density
    (Rasmussen and Williams, 2006, equation 5.8, with normal priors on their logarithms); the scale of the
    covariance follows from them. Group means are unknowns with a prior.

    `frame`: blocks and units of features; by default one block, in units of the data.
    `most`: most measurements; beyond it, the fastest of each group and a sample of the rest are used.
    `seed`: seed of that sample.
    """

    def __init__(self, *, frame: FeatureSpace | None = None, most: int = 500, seed: int = 0) -> None:
        self.frame, self.most, self.seed = frame, most, seed
        self._known: Table | None = None
        self._slopes = np.zeros((0, 0))
        self._prior = self._spread = np.zeros(0)
        self._scale = 1.0
        self._variance = 1.0

    def fit(
        self,
        features: ArrayLike,
        costs: ArrayLike,
        groups: ArrayLike | None = None,
        margin: ArrayLike | None = None,
        bases: Bases | None = None,
    ) -> None:
        """Learn log costs relative to each group's mean (see `CostModel.fit`).

        A failed candidate counts as twice as slow as the group's slowest. Groups without a
        success are left out.

        `features`, `costs`, `groups`, `margin`: as for `CostModel.fit`.
        `bases`: other models' predictions for the same candidates; later predictions then need them too.
        """
        table, times, labels, base = check(features, costs, groups, margin)
        self._known = None
        bases = bases or Bases.none(len(table))
        self._prior, self._spread = bases.mean, bases.variance
        slopes = (
            np.stack([centred(basis, labels) for basis in bases.values.T], axis=1)
            if bases.count
            else bases.values
        )
        goal = speeds_by_group(times, labels)
        goal -= centred(base, labels) + slopes @ bases.mean
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
        slopes = slopes[rows] / spread
        shared = labels[rows][:, None] == labels[rows][None, :]
        offset = _OFFSET * shared + self._slanted(slopes, slopes)
        some = np.random.default_rng(self.seed).permutation(len(rows))[:_TUNED_ON]
        theta, self._noise = _relevances(
            [block[some] for block in blocks], goal[rows][some], offset[np.ix_(some, some)]
        )
        self._factors = np.sqrt(theta)[owners]
        known = scaled * self._factors
        covariance = _matern(_apart(known, known)) + offset
        self._root = np.linalg.cholesky(covariance + (self._noise + _JITTER) * np.eye(len(rows)))
        half = solve_triangular(self._root, goal[rows], lower=True)
        self._weights = solve_triangular(self._root, half, lower=True, trans="T")
        self._variance = (float(half @ half) + 1) / (len(rows) + 1)
        self._known, self._slopes = known, slopes

    @property
    def coefficients(self) -> Table:
        """The expected coefficient of each basis after the fit, (k,)."""
        if self._known is None:
            return self._prior
        mean: Table = self._prior + self._spread * (self._weights @ self._slopes[: len(self._weights)])
        return mean

    def predict(self, features: ArrayLike, bases: Table | None = None) -> Prediction:
        """Predict speeds; without measurements, all candidates have the mean of the bases and maximal
        uncertainty.

        `features`: float32, (n, D).
        `bases`: predictions of the bases for these candidates, log2 speeds, (n, k), if the fit had any.
        """
        table = clean(features)
        slopes = np.zeros((len(table), len(self._prior))) if bases is None else bases
        prior = slopes @ self._prior
        if self._known is None:
            return Prediction(prior, np.ones(len(table)))
        means, deviations = [np.empty(0)], [np.empty(0)]
        for start in range(0, len(table), _BLOCK):
            slope = slopes[start : start + _BLOCK] / self._scale
            place = self._placed(table[start : start + _BLOCK])
            near = _matern(_apart(place, self._known)) + self._slanted(slope, self._slopes)
            half = solve_triangular(self._root, near.T, lower=True, check_finite=False)
            left = np.maximum(1.0 + slope**2 @ self._spread - (half**2).sum(axis=0), 1e-9)
            means.append(near[:, : len(self._weights)] @ self._weights)
            deviations.append(np.sqrt(self._variance * left))
        return Prediction(
            prior + self._scale * np.concatenate(means), self._scale * np.concatenate(deviations)
        )

    def mean(self, features: ArrayLike) -> Table:
        """Return the means of `predict`, without bases."""
        table = clean(features)
        if self._known is None or len(self._prior):
            return self.predict(table).mean
        known, weights = self._known, self._scale * self._weights
        blocks = [self._placed(table[start : start + _BLOCK]) for start in range(0, len(table), _BLOCK)]
        return np.concatenate([np.empty(0), *(_matern(_apart(place, known)) @ weights for place in blocks)])

    def believing(self, features: ArrayLike, bases: Table | None = None) -> GaussianProcess:
        """Return this process conditioned on its predictions (see `CostModel.believing`)."""
        if self._known is None:
            return self
        more = copy(self)
        place = self._placed(clean(features))
        slope = np.zeros((len(place), len(self._prior))) if bases is None else bases / self._scale
        side = _matern(_apart(self._known, place)) + self._slanted(self._slopes, slope)
        side = solve_triangular(self._root, side, lower=True)
        covariance = _matern(_apart(place, place)) + self._slanted(slope, slope) - side.T @ side
        corner = np.linalg.cholesky(covariance + (self._noise + _JITTER) * np.eye(len(place)))
        top = np.concatenate([self._root, np.zeros_like(side)], axis=1)
        more._root = np.concatenate([top, np.concatenate([side.T, corner], axis=1)])
        more._known = np.concatenate([self._known, place])
        more._slopes = np.concatenate([self._slopes, slope])
        return more

    def _slanted(self, left: Table, right: Table) -> Table:
        """Return the covariance from the bases' unknown coefficients."""
        covariance: Table = (left * self._spread) @ right.T
        return covariance

    def _chosen(self, goal: Table, labels: NDArray[np.intp]) -> NDArray[np.intp]:
        """Return the rows to learn from; if there are too many, half are the fastest of their groups."""
        rows = np.flatnonzero(np.isfinite(goal))
        if len(rows) <= self.most:
            return rows
        places = np.empty(len(rows), dtype=np.intp)
        for group in np.unique(labels[rows]):
            members = np.flatnonzero(labels[rows] == group)
            places[members[np.argsort(-goal[rows[members]], kind="stable")]] = np.arange(len(members))
        order = np.argsort(places, kind="stable")
        half = self.most // 2
        rest = np.random.default_rng(self.seed).permutation(order[half:])[: self.most - half]
        return np.sort(rows[np.concatenate([order[:half], rest])])

    def _placed(self, table: NDArray[np.float32]) -> Table:
        """Return features whose squared distances are the kernel's."""
        return self._frame.scaled(table) * self._factors


def _apart(left: Table, right: Table) -> Table:
    """Return squared distances between rows, (len(left), len(right))."""
    squares: Table = (left**2).sum(axis=1)[:, None] + (right**2).sum(axis=1) - 2 * left @ right.T
    return np.maximum(squares, 0.0)


def _matern(apart: Table) -> Table:
    """Return Matérn's covariance with smoothness 5/2 for squared distances."""
    steps = np.sqrt(10.0 * apart)
    covariance: Table = (1.0 + steps + steps**2 / 3.0) * np.exp(-steps)
    return covariance


def _relevances(blocks: Sequence[Table], goal: Table, offset: Table) -> tuple[Table, float]:
    """Return the relevance of each block, (B,), and the noise variance relative to the covariance's scale."""
    distances = np.stack([_apart(block, block) for block in blocks])
    count, size = len(blocks), len(goal)
    start = np.full(count + 1, -np.log(count))
    start[count] = -5.0
    widths = np.ones(count + 1)
    widths[count] = 2.0

    def loss(point: Table) -> tuple[float, Table]:
        """Return the negative log posterior density up to a constant, and its gradient."""
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
    optimum = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": _STEPS})
    return np.exp(optimum.x[:count]), float(np.exp(optimum.x[count]))
