"""The rank loss, AutoTVM eq. 2 (RankNet): only the order of costs counts.

With s the scores (higher is better), over the pairs of one group with c_i < c_j:

    loss = sum over i, j of log(1 + exp(s_j - s_i)) / size of the group

Equation 2 without the division; with it, a row of a big group weighs as much as one of a
small group, and XGBoost's regularisation means the same for every amount of data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]
Block = NDArray[np.intp]

STEEPNESS = 4.0
"""Scores per unit of a margin, which is a factor of two in speed. For two candidates that far apart, the loss
assumes that the faster wins with a probability of 98%."""


def blocks(costs: Vector, groups: NDArray[np.intp], limit: int, rng: np.random.Generator) -> Iterator[Block]:
    """Yield row numbers within which all pairs are compared, each block sorted by cost.

    A group of more than `limit` rows is shuffled and cut into blocks of about that size: a random subsample
    of its pairs, which differs in every call.
    """
    for group in range(int(groups.max(initial=-1)) + 1):
        rows = np.flatnonzero(groups == group)
        parts = -(-len(rows) // limit)
        if parts > 1:
            rows = rng.permutation(rows)
        for block in np.array_split(rows, max(parts, 1)):
            yield block[np.argsort(costs[block], kind="stable")]


def gradient(scores: Vector, costs: Vector, parts: Sequence[Block]) -> tuple[Vector, Vector]:
    """Return the first derivative of the loss over the pairs within each block, and the diagonal of the
    second, by each score: both float64, shape (n,).
    """
    first, second = np.zeros_like(scores), np.zeros_like(scores)
    for block in parts:
        c = costs[block]
        # 1 / (1 + exp(s_i - s_j)) from n exponentials instead of n^2; the clip keeps their
        # product finite (below 1e308), and scores never get so far apart.
        s = np.clip(scores[block] - scores[block].mean(), -300.0, 300.0)
        wrong = 1.0 / (1.0 + np.exp(s)[:, None] * np.exp(-s)[None, :])
        wrong *= c[:, None] < c[None, :]
        first[block] += (wrong.sum(axis=0) - wrong.sum(axis=1)) / len(block)
        # `wrong` is 0 for pairs that do not count, and so is the curvature.
        curved = wrong - wrong * wrong
        second[block] += (curved.sum(axis=0) + curved.sum(axis=1)) / len(block)
    return first, second
