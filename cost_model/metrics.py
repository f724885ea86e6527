"""How good a cost model's ranking is."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

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
