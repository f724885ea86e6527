"""Choosing a batch that is both good and diverse (AutoTVM, equation 3)."""

from __future__ import annotations

import numpy as np


def objective(points: np.ndarray, scores: np.ndarray, chosen: list[int], alpha: float) -> float:
    """Value of a batch: summed scores, plus `alpha` for each component that it covers.

    AutoTVM, equation 3, with merit for cost: ``sum(f(s)) + alpha * sum_j |union of s_j|``,
    where the components of a configuration are its knobs.

    Parameters
    ----------
    points
        Positions of the candidates' choices, (n, knobs).
    scores
        Merit of the candidates, (n,).
    chosen
        Indices of the batch.
    """
    covered = sum(len(np.unique(points[chosen, j])) for j in range(points.shape[1]))
    return float(scores[chosen].sum() + alpha * covered)


def select(points: np.ndarray, scores: np.ndarray, count: int, alpha: float) -> list[int]:
    """Pick a batch that nearly maximises `objective`, by the greedy algorithm.

    As the objective is submodular, the result is worth at least 1 - 1/e of the best batch
    where no score is negative.

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
