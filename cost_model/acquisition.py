"""Uncertainty from a bootstrap, and acquisition functions on it (AutoTVM, section 3.3)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from hbtvm.cost_model.base import CostModel, Scores, check

MODELS = 5
"""Models of a bootstrap, as many as in the paper."""

_KAPPA = 1.0
"""Standard deviations that the upper confidence bound adds to the mean."""

_FAR = 5.0
"""Standard deviations below the best from which on the expected improvement follows its asymptote."""


class Bootstrap:
    """Several models, each fitted to a sample of the data drawn with replacement (a `CostModel`).

    Parameters
    ----------
    make
        Makes an untrained model from a seed.
    count
        Number of models.
    """

    def __init__(self, make: Callable[[int], CostModel], count: int = MODELS) -> None:
        self._models = [make(seed) for seed in range(count)]

    def fit(
        self,
        features: ArrayLike,
        costs: ArrayLike,
        groups: ArrayLike | None = None,
        margin: ArrayLike | None = None,
    ) -> None:
        """Fit each model to a sample of its own (see `CostModel.fit`)."""
        table, times, labels, base = check(features, costs, groups, margin)
        rng = np.random.default_rng(0)
        for model in self._models:
            rows = rng.integers(len(table), size=len(table))
            model.fit(table[rows], times[rows], labels[rows], base[rows])

    def predict(self, features: ArrayLike) -> Scores:
        """Mean of the models' scores (see `CostModel.predict`)."""
        mean: Scores = self.samples(features).mean(axis=0)
        return mean

    def samples(self, features: ArrayLike) -> NDArray[np.float32]:
        """Each model's scores, (models, n)."""
        return np.stack([model.predict(features) for model in self._models])


def samples(model: CostModel, features: ArrayLike) -> NDArray[np.float32]:
    """Scores of candidates by each model of a bootstrap, (models, n); by any other model, (1, n)."""
    several = getattr(model, "samples", None)
    return model.predict(features)[None] if several is None else np.asarray(several(features))


def expect(
    model: CostModel, features: ArrayLike, believed: ArrayLike | None = None
) -> tuple[Scores, Scores] | None:
    """Scores of candidates and their standard deviations, (n,) each; None if the model predicts none.

    `believed` are features of candidates whose measurements are assumed to equal their means, see
    `hbtvm.cost_model.gaussian_process.GaussianProcess.expect`.
    """
    expects = getattr(model, "expect", None)
    found: tuple[Scores, Scores] | None = None if expects is None else expects(features, believed)
    return found


def merit(kind: str, scores: NDArray[np.float32], best: float) -> NDArray[np.float64]:
    """Merit of candidates from several models' scores.

    Parameters
    ----------
    kind
        ``"mean"``, ``"ucb"`` (upper confidence bound: mean plus one standard deviation) or ``"ei"``
        (expected improvement on `best`: mean of what each model expects, which needs no
        assumption on how the scores are distributed, plus a thousandth of the mean, which
        orders those from which no model expects anything).
    scores
        Of each model, (models, n).
    best
        Score of the best candidate measured so far.

    Raises
    ------
    ValueError
        If there is no such acquisition.
    """
    mean: NDArray[np.float64] = scores.mean(axis=0, dtype=np.float64)
    if kind == "mean":
        return mean
    if kind == "ucb":
        return np.asarray(mean + _KAPPA * scores.std(axis=0, dtype=np.float64))
    if kind == "ei":
        return np.asarray(np.maximum(scores - best, 0.0).mean(axis=0, dtype=np.float64) + 1e-3 * mean)
    raise ValueError(f"there is no acquisition {kind!r}")


def normal_merit(kind: str, mean: Scores, deviation: Scores, best: float) -> NDArray[np.float64]:
    """Merit of candidates whose scores are normally distributed.

    Parameters
    ----------
    kind, best
        As of `merit`; the expected improvement (Jones et al., 1998, equation 15) comes as its logarithm, as
        that of most candidates is too small for a number.
    mean, deviation
        (n,) each.

    Raises
    ------
    ValueError
        If there is no such acquisition.
    """
    middle, width = mean.astype(np.float64), deviation.astype(np.float64)
    if kind == "mean":
        return middle
    if kind == "ucb":
        return np.asarray(middle + _KAPPA * width)
    if kind == "ei":
        above = (middle - best) / width
        # Far below the best, density and distribution cancel; what is left is density / above ** 2.
        near = np.maximum(above, -_FAR)
        gain = near * ndtr(near) + np.exp(-0.5 * near**2) / np.sqrt(2 * np.pi)
        beyond = 0.5 * (near**2 - above**2) - 2 * np.log(np.maximum(-above, _FAR) / _FAR)
        return np.asarray(np.log(width) + np.log(gain) + beyond)
    raise ValueError(f"there is no acquisition {kind!r}")
