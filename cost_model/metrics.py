"""Quality of a cost model's ranking."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

_ROWS = 256  # rows compared with all others at once, to bound memory


def recall_at_k(scores: ArrayLike, costs: ArrayLike, k: int) -> float:
    """Return the fraction of the k cheapest candidates among the k with the highest scores.

    Ties are broken by position. With fewer than k candidates, all are compared, which gives 1. Raises
    `ValueError` if k is less than 1, or there are no candidates.
    """
    score, cost = np.asarray(scores, dtype=np.float64), np.asarray(costs, dtype=np.float64)
    if k < 1 or not len(cost):
        raise ValueError(f"k is {k} and there are {len(cost)} candidates; both must be at least 1")
    k = min(k, len(cost))
    chosen = np.argsort(-score, kind="stable")[:k]
    cheapest = np.argsort(cost, kind="stable")[:k]
    return len(np.intersect1d(chosen, cheapest)) / k


def pairwise_accuracy(scores: ArrayLike, costs: ArrayLike, groups: ArrayLike | None = None) -> float:
    """Return the fraction of pairs of different cost within a group that the scores order correctly.

    A pair with equal scores counts one half. The result is 0.5 if there are no pairs.
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
