"""Values of games without a model, against the mean over all orders."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from hbtvm.runtime.explaining.shapley import Scores, enumerated, sampled


def game(rows: int, backgrounds: int, players: int) -> tuple[Scores, np.ndarray, np.ndarray]:
    """Return a game with interactions of two outputs, and its scores of all and of no players."""
    rng = np.random.default_rng(5)
    X, B = rng.normal(size=(rows, players)), rng.normal(size=(backgrounds, players)) + 0.5
    weights = rng.normal(size=(players, 2))

    def value(Z: np.ndarray) -> np.ndarray:
        return np.stack([np.sin(Z @ weights[:, 0]) * Z[..., 0], (Z @ weights[:, 1]) ** 2], axis=-1)

    def scores(background: np.ndarray, coalitions: np.ndarray) -> np.ndarray:
        return value(np.where(coalitions, X[:, None], B[background]))

    return scores, value(X), value(B)


def over_all_orders(scores: Scores, backgrounds: int, players: int) -> np.ndarray:
    everyone = np.arange(backgrounds)

    def v(members: tuple[int, ...]) -> np.ndarray:
        coalition = np.isin(np.arange(players), members)
        return scores(everyone, np.tile(coalition, (backgrounds, 1))).mean(axis=1)

    orders = list(permutations(range(players)))
    values = []
    for j in range(players):
        before = [order[: order.index(j)] for order in orders]
        values.append(np.mean([v((*each, j)) - v(each) for each in before], axis=0))
    return np.stack(values, axis=1)


@pytest.mark.parametrize(("players", "most"), [(1, 100), (2, 3), (4, 7), (4, 1000)])
def test_enumeration_is_the_mean_over_all_orders(players: int, most: int) -> None:
    scores, full, empty = game(3, 5, players)
    values = enumerated(scores, 5, players, most)
    np.testing.assert_allclose(values, over_all_orders(scores, 5, players), rtol=0, atol=1e-12)
    np.testing.assert_allclose(values.sum(axis=1), full - empty.mean(axis=0), rtol=0, atol=1e-12)


@pytest.mark.parametrize(("samples", "most"), [(3, 1000), (7, 1000), (40, 5), (64, 100000)])
def test_samples_add_up(samples: int, most: int) -> None:
    scores, full, empty = game(4, 9, 5)
    values, errors = sampled(scores, full, empty, 5, samples, 0, most)
    np.testing.assert_allclose(values.sum(axis=1), full - empty.mean(axis=0), rtol=0, atol=1e-10)
    assert errors.shape == values.shape == (4, 5, 2)
    whole, _ = sampled(scores, full, empty, 5, samples, 0, 1 << 20)
    np.testing.assert_allclose(values, whole, rtol=0, atol=1e-12)  # blocks change nothing


@pytest.mark.parametrize(("samples", "least"), [(100, 0.85), (50, 0.85), (30, 0.8), (20, 0.5), (15, 0.6)])
def test_errors_of_samples_are_as_large_as_stated(samples: int, least: float) -> None:
    """Without repetitions of background rows, stated errors are too large, never too small.

    (The other output has interactions of pairs only, which both walks of an order cancel exactly.)
    """
    scores, full, empty = game(6, 20, 6)
    truth = enumerated(scores, 20, 6, 1 << 16)
    misses, stated = [], []
    for seed in range(100):
        values, errors = sampled(scores, full, empty, 6, samples, seed, 1 << 16)
        misses.append((values - truth)[..., 0])
        stated.append(errors[..., 0])
    assert least < np.linalg.norm(misses) / np.linalg.norm(stated) < 1.15
    # No bias beyond what 100 seeds leave.
    assert np.abs(np.mean(misses, axis=0)).max() < 4 * np.std(misses, axis=0).max() / 10


def test_samples_of_an_additive_game_are_exact() -> None:
    X, B = np.arange(8.0).reshape(2, 4), np.ones((3, 4)) * [[1.0], [2.0], [5.0]]

    def scores(background: np.ndarray, coalitions: np.ndarray) -> np.ndarray:
        return np.where(coalitions, X[:, None], B[background]).sum(axis=-1, keepdims=True)

    full, empty = X.sum(axis=1, keepdims=True), B.sum(axis=1, keepdims=True)
    values, errors = sampled(scores, full, empty, 4, 4, 0, 100)  # one row of the background twice
    np.testing.assert_allclose(values[:, :, 0], X - B.mean(axis=0), rtol=0, atol=1e-12)
    np.testing.assert_allclose(errors, 0, atol=1e-12)


def test_backgrounds_that_score_alike() -> None:
    scores, full, _ = game(2, 1, 4)
    empty = scores(np.zeros(1, int), np.zeros((1, 4), bool))[0]
    values, errors = sampled(scores, full, empty, 4, 50, 1, 1000)
    truth = enumerated(scores, 1, 4, 1000)
    assert np.abs(values - truth).max() < 4 * errors.max()
    np.testing.assert_allclose(values.sum(axis=1), full - empty, rtol=0, atol=1e-12)
