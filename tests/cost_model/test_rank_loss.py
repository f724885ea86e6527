"""The rank loss (AutoTVM, eq. 2) against its definition."""

import math

import numpy as np
import pytest

from hbtvm.cost_model import rank_loss


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    costs = rng.choice([1.0, 2.0, 3.0, np.inf], 30)
    return rng.normal(size=30) * 2, costs, rng.integers(0, 3, 30)


def parts_of(costs, groups, limit=100):
    return list(rank_loss.blocks(costs, groups, limit, np.random.default_rng(0)))


def loss(scores, costs, groups):
    """Equation 2 as it stands, each group's sum divided by the group's size."""
    return sum(
        math.log(1 + math.exp(scores[j] - scores[i])) / (groups == groups[i]).sum()
        for i in range(len(scores))
        for j in range(len(scores))
        if groups[i] == groups[j] and costs[i] < costs[j]
    )


def test_the_gradient_is_that_of_the_loss(data):
    scores, costs, groups = data
    parts = parts_of(costs, groups)
    first, second = rank_loss.gradient(scores, costs, parts)
    step = 1e-4
    for row in range(30):
        moved = step * (np.arange(30) == row)
        low, here, high = (loss(scores + sign * moved, costs, groups) for sign in (-1, 0, 1))
        assert first[row] == pytest.approx((high - low) / (2 * step), abs=1e-6)
        assert second[row] == pytest.approx((high - 2 * here + low) / step**2, abs=1e-5)


def test_scores_far_apart_stay_finite():
    costs = np.array([1.0, 2.0, np.inf])
    parts = parts_of(costs, np.zeros(3, dtype=np.intp))
    for scores in (np.array([1e9, 0, -1e9]), np.array([-1e9, 0, 1e9])):
        first, second = rank_loss.gradient(scores, costs, parts)
        assert np.isfinite(first).all() and (second >= 0).all()
    assert first[0] < 0 < first[2]


def test_big_groups_are_cut_into_blocks_that_hold_every_row_once():
    rng = np.random.default_rng(0)
    costs, groups = rng.random(1000), np.repeat([0, 1], [900, 100])
    parts = parts_of(costs, groups, limit=128)
    assert sorted(np.concatenate(parts)) == list(range(1000))
    assert max(map(len, parts)) <= 128
    assert all(len(set(groups[block])) == 1 for block in parts)
    assert all((np.diff(costs[block]) >= 0).all() for block in parts)
