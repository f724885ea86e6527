"""How good a cost model's ranking is, and how good a search was."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

_ROWS = 256
"""Rows compared with all others at once, so that memory stays small."""


def recall_at_k(scores: ArrayLike, costs: ArrayLike, k: int) -> float:
    """Fraction of the k cheapest candidates that are among the k with the highest scores.

    Equal values count in their given order. With fewer than k candidates all of them are
    compared, which gives 1.

    Raises
    ------
    ValueError
        If k is less than 1, or there are no candidates.
    """
    score, cost = np.asarray(scores, dtype=np.float64), np.asarray(costs, dtype=np.float64)
    if k < 1 or not len(cost):
        raise ValueError(f"k is {k} and there are {len(cost)} candidates; both must be at least 1")
    k = min(k, len(cost))
    chosen = np.argsort(-score, kind="stable")[:k]
    cheapest = np.argsort(cost, kind="stable")[:k]
    return len(np.intersect1d(chosen, cheapest)) / k


def pairwise_accuracy(scores: ArrayLike, costs: ArrayLike, groups: ArrayLike | None = None) -> float:
    """Fraction of pairs of different cost, within one group, that the scores order rightly.

    A pair with equal scores counts one half. 0.5 where there is no pair to compare.
    """
    score, cost = np.asarray(scores, dtype=np.float64), np.asarray(costs, dtype=np.float64)
    label = np.zeros(len(cost)) if groups is None else np.asarray(groups)
    right = total = 0.0
    for start in range(0, len(cost), _ROWS):
        rows = slice(start, start + _ROWS)
        pair = (cost[rows, None] < cost) & (label[rows, None] == label)
        total += float(pair.sum())
        right += float((pair & (score[rows, None] > score)).sum())
        right += 0.5 * float((pair & (score[rows, None] == score)).sum())
    return right / total if total else 0.5


def best_so_far(costs: ArrayLike) -> NDArray[np.float64]:
    """Lowest cost up to and including each trial, (n,)."""
    return np.minimum.accumulate(np.asarray(costs, dtype=np.float64))


def best_so_far_auc(costs: ArrayLike, reference: float | None = None) -> float:
    """Area under the curve of speed (reference / best so far) over trials, scaled to 1.

    1 where the first trial reached `reference` (seconds; the run's own best, unless given),
    more where trials beat it. A trial before the first success counts 0, and so does a run
    without one or without trials.
    """
    curve = best_so_far(costs)
    if not len(curve) or not np.isfinite(curve[-1]):
        return 0.0
    return float(np.mean((curve[-1] if reference is None else reference) / curve))
