"""Shapley values of a game of k players, whose coalitions a function scores.

A player's value is its mean contribution ``v(S + player) - v(S)`` over all orders in which players join
(Shapley 1953). `enumerated` scores every coalition. `sampled` draws orders, each followed forwards and
backwards: errors of the two walks cancel in part (antithetic sampling; Mitchell et al., JMLR 2022).
"""

from __future__ import annotations

from collections.abc import Callable
from math import factorial

import numpy as np

_REPEATED = 8  # least repetitions of background rows that show a variance

Scores = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""From backgrounds (m,) and coalitions, bool (m, k), to scores of r rows, float64 (r, m, O).

In a coalition a row has its own values of the players that are true, and the background row's of the others.
"""


def enumerated(scores: Scores, backgrounds: int, players: int, most: int) -> np.ndarray:
    """Return exact values, float64 (r, players, O).

    `scores`: of the rows.
    `backgrounds`: the number of background rows; the game's score is the mean over them.
    `players`: their number, at least 1.
    `most`: most coalitions of a call of `scores`.
    """
    count = 1 << players
    coalitions = (np.arange(count)[:, None] >> np.arange(players)) & 1 == 1
    weights = _weights(coalitions)
    total: np.ndarray | float = 0.0
    pairs = backgrounds * count
    for start in range(0, pairs, most):
        background, coalition = np.divmod(np.arange(start, min(start + most, pairs)), count)
        v = scores(background, coalitions[coalition])
        total = total + np.einsum("kc,rco->rko", weights[:, coalition], v, optimize=True)
    return np.asarray(total) / backgrounds


def _weights(coalitions: np.ndarray) -> np.ndarray:
    """Return each coalition's factor in each player's value, shape (players, coalitions)."""
    k = coalitions.shape[1]
    of_size = np.array([factorial(s) * factorial(k - s - 1) / factorial(k) for s in range(k)])
    size = coalitions.sum(axis=1)
    gains, losses = of_size[np.maximum(size - 1, 0)], of_size[np.minimum(size, k - 1)]
    weights: np.ndarray = np.where(coalitions.T, gains, -losses)
    return weights


def sampled(
    scores: Scores, full: np.ndarray, empty: np.ndarray, players: int, samples: int, seed: int, most: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return estimated values and their standard errors, both float64 (r, players, O).

    Values of a row add up to ``full - empty.mean(axis=0)``. All rows get the same orders and backgrounds, so
    that a row's values do not depend on the others.

    `scores`: of the rows.
    `full`: scores of the rows themselves, (r, O).
    `empty`: scores of all background rows, (b, O).
    `players`: their number, at least 2.
    `samples`: number of orders, each with one background row, at least 3.
    `seed`: of numpy's generator.
    `most`: most coalitions of a call of `scores`.
    """
    generator = np.random.default_rng(seed)
    rank = generator.permuted(np.tile(np.arange(players), (samples, 1)), axis=1)
    rounds = [generator.permutation(len(empty)) for _ in range(-(-samples // len(empty)))]
    background = np.concatenate(rounds)[:samples]
    steps = players - 1
    per_call = max(1, most // (2 * steps))
    gains = np.concatenate(
        [
            _walks(scores, full, empty, rank[start : start + per_call], background[start : start + per_call])
            for start in range(0, samples, per_call)
        ],
        axis=1,
    )
    return _estimate(gains, full, empty, background)


def _walks(
    scores: Scores, full: np.ndarray, empty: np.ndarray, rank: np.ndarray, background: np.ndarray
) -> np.ndarray:
    """Return the players' mean gains in both walks through each order, (r, orders, players, O)."""
    orders, players = rank.shape
    size = np.arange(1, players)
    forward = rank[:, None, :] < size[None, :, None]
    both = np.stack([forward, ~forward])
    v = scores(np.tile(np.repeat(background, players - 1), 2), both.reshape(-1, players))
    v = v.reshape(len(v), 2, orders, players - 1, -1)
    shape = (len(full), orders, 1, full.shape[1])
    first = np.broadcast_to(empty[background][None, :, None], shape)
    last = np.broadcast_to(full[:, None, None], shape)
    # The backward walk's coalitions are the complements: after `size` steps its first players have left.
    gains = np.diff(np.concatenate([first, v[:, 0], last], axis=2), axis=2)
    gains -= np.diff(np.concatenate([last, v[:, 1], first], axis=2), axis=2)
    return np.take_along_axis(gains, rank[None, :, :, None], 2) / 2


def _estimate(
    gains: np.ndarray, full: np.ndarray, empty: np.ndarray, background: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return means of gains and their standard errors.

    The gains of an order add up to ``full - empty[background]``. Once every background row was drawn, they
    are averaged for each of them first. Before, their regression on ``empty[background]``, whose mean is
    known, removes the error that the drawn rows cause (control variate). Both make the values add up.
    """
    drawn, base = empty[background], empty.mean(axis=0)
    mean = gains.mean(axis=1)
    deviation = drawn - drawn.mean(axis=0)
    spread = (deviation**2).sum(axis=0)
    flat = spread <= 1e-20 * (1 + (drawn**2).sum(axis=0))
    slope = np.einsum("rnko,no->rko", gains, deviation, optimize=True) / np.where(flat, 1, spread)
    slope = np.where(flat, 0, slope)
    rest = gains - mean[:, None] - slope[:, None] * deviation[None, :, None]
    if len(background) < len(empty):
        weight = np.full(len(background), 1 / len(background))
        values = mean - slope * (drawn.mean(axis=0) - base)
    else:
        weight = 1 / (len(empty) * np.bincount(background)[background])
        values = np.einsum("rnko,n->rko", gains, weight, optimize=True)
    # Rounding, and all of the difference where the drawn backgrounds score alike.
    values += ((full - base - values.sum(axis=1)) / gains.shape[2])[:, None]
    return values, np.sqrt(_variance(rest, background, weight, len(empty)))


def _variance(rest: np.ndarray, background: np.ndarray, weight: np.ndarray, backgrounds: int) -> np.ndarray:
    """Return the variance of a weighted mean over orders, (r, players, O).

    Once all background rows were drawn, and some again, they are strata: differences between them cause no
    error, and repetitions show the variance within a stratum. Before, rows count as if they had been drawn
    with replacement, which states somewhat too much.
    """
    n = rest.shape[1]
    squares, free = (rest**2).sum(axis=1), n - 2
    if n - backgrounds >= _REPEATED:
        stratum = (background[None] == np.arange(backgrounds)[:, None]).astype(np.float64)
        sums = np.einsum("rnko,bn->rbko", rest, stratum, optimize=True)
        squares = squares - np.einsum("rbko,b->rko", sums**2, 1 / stratum.sum(axis=1), optimize=True)
        free = n - backgrounds
    return np.asarray(squares.clip(0) / free * (weight**2).sum())
