"""Choose a batch that is both good and diverse (AutoTVM, equation 3)."""

from __future__ import annotations

import numpy as np


def select(points: np.ndarray, scores: np.ndarray, count: int, alpha: float) -> list[int]:
    """Pick a batch that nearly maximises AutoTVM's equation 3, by the greedy algorithm.

    It maximises ``sum(f(s)) + alpha * sum_j |union of s_j|``: the summed scores, plus `alpha` for each choice
    that is covered. The objective is submodular, so without negative scores the result is worth at least
    1 - 1/e of the best batch.

    `points`: positions of the candidates' choices, (n, knobs).
    `scores`: merit of the candidates, (n,).
    Returns indices in the order of picking, the best score first; fewer than `count` only without more
    candidates.
    """
    gains = scores.astype(float) + alpha * points.shape[1]
    chosen: list[int] = []
    while len(chosen) < min(count, len(scores)):
        best = int(np.argmax(gains))
        # Candidates gain nothing from choices that the batch now covers.
        new = [j for j in range(points.shape[1]) if not np.any(points[chosen, j] == points[best, j])]
        gains -= alpha * (points[:, new] == points[best, new]).sum(axis=1)
        gains[best] = -np.inf
        chosen.append(best)
    return chosen
