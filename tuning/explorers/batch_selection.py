"""Choosing a batch that is both good and diverse (AutoTVM, equation 3)."""

from __future__ import annotations

import numpy as np


def select(points: np.ndarray, scores: np.ndarray, count: int, alpha: float) -> list[int]:
    """Pick a batch that nearly maximises AutoTVM's equation 3, by the greedy algorithm.

    With merit for cost that is ``sum(f(s)) + alpha * sum_j |union of s_j|``, where the components
    of a configuration are its knobs: summed scores, plus `alpha` for each choice that is covered. As
    it is submodular, the result is worth at least 1 - 1/e of the best batch where no score is
    negative.

    Parameters
    ----------
    points
        Positions of the candidates' choices, (n, knobs).
    scores
        Merit of the candidates, (n,).

    Returns
    -------
    Indices of the picked candidates, in the order in which they were picked: the first is
    the one with the best score. Fewer than `count` only where there are fewer candidates.
    """
    gains = scores.astype(float) + alpha * points.shape[1]
    chosen: list[int] = []
    while len(chosen) < min(count, len(scores)):
        best = int(np.argmax(gains))
        # A choice that the batch now covers is worth nothing to those who share it.
        new = [j for j in range(points.shape[1]) if not np.any(points[chosen, j] == points[best, j])]
        gains -= alpha * (points[:, new] == points[best, new]).sum(axis=1)
        gains[best] = -np.inf
        chosen.append(best)
    return chosen
