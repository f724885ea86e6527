"""Gaussian processes: relevance of features, uncertainty, groups, and residuals of another model."""

import numpy as np
import pytest

from hbtvm.cost_model import (
    RankModel,
    pairwise_accuracy,
    recall_at_k,
)
from hbtvm.cost_model.models.gaussian_process import Bases, FeatureSpace, GaussianProcess
from hbtvm.cost_model.models.residual import ResidualModel
from tests.cost_model.test_models import Says, candidates, framed, residual


def test_a_process_learns_which_features_matter():
    """Of ten columns one decides: found when each is a block, not when all of them are one."""
    rng = np.random.default_rng(0)
    table = rng.uniform(-1, 1, size=(430, 10)).astype(np.float32)
    costs = 2.0 ** np.sin(4 * table[:, 3].astype(float))
    found = []
    for model in (framed(table), GaussianProcess()):
        model.fit(table[:30], costs[:30])
        found.append(pairwise_accuracy(model.predict(table[30:]).mean, costs[30:]))
    assert found[0] > 0.9 > found[1]


def test_a_process_knows_how_sure_it_is():
    rng = np.random.default_rng(0)
    table = rng.uniform(-1, 1, size=(440, 2)).astype(np.float32)
    speeds = np.sin(3 * table[:, 0]) + table[:, 1] ** 2
    model = framed(table)
    model.fit(table[:40], 2.0 ** -speeds[:40].astype(float))
    found = model.predict(table)
    mean, deviation = found.mean, found.std
    assert deviation[:40].max() < np.median(deviation[40:])
    off = (speeds - speeds[:40].mean() - mean)[40:] / deviation[40:]
    assert np.mean(np.abs(off) < 1) > 0.6 and np.mean(np.abs(off) < 3) > 0.97
    # What is believed to turn out as expected changes no score, but takes its surroundings' doubt.
    unsure = int(np.argmax(deviation))
    again = model.believing(table[unsure][None]).predict(table)
    np.testing.assert_allclose(again.mean, mean, atol=1e-6)
    assert again.std[unsure] < 0.3 * deviation[unsure] and (again.std <= deviation + 1e-6).all()
    # The process itself is as it was, and one by one is as good as at once.
    np.testing.assert_array_equal(model.predict(table).std, deviation)
    rows = np.argsort(-deviation)[:3]
    one_by_one = model
    for row in rows:
        one_by_one = one_by_one.believing(table[row][None])
    at_once = model.believing(table[rows])
    np.testing.assert_allclose(one_by_one.predict(table).std, at_once.predict(table).std, atol=1e-8)


def test_a_process_compares_only_within_groups():
    """One group is measured at its slow end and one at its fast end: what both say is still found."""
    rng = np.random.default_rng(0)
    table = rng.uniform(-1, 1, size=(260, 2)).astype(np.float32)
    speeds = 2 * table[:, 0].astype(float)
    groups = (table[:, 0] > 0).astype(int)
    costs = 2.0 ** (10.0 * groups - speeds)
    model = framed(table)
    model.fit(table[:60], costs[:60], groups[:60])
    assert pairwise_accuracy(model.predict(table[60:]).mean, -speeds[60:]) > 0.9


def test_of_many_measurements_a_process_keeps_the_fastest():
    rng = np.random.default_rng(0)
    table = rng.uniform(-1, 1, size=(600, 2)).astype(np.float32)
    costs = 2.0 ** np.sin(9 * table.astype(float)).sum(axis=1)
    model = GaussianProcess(frame=FeatureSpace.of(table, [1, 1]), most=60)
    model.fit(table, costs)
    best = np.argsort(costs)[:20]
    deviation = model.predict(table).std
    assert deviation[best].mean() < 0.7 * deviation.mean()
    assert recall_at_k(model.predict(table).mean, costs, 30) > 0.5


def test_a_process_without_a_success_has_no_opinion():
    table, _ = candidates(0, 20)
    model = GaussianProcess()
    model.fit(table, np.full(20, np.inf))
    found = model.predict(table)
    assert not found.mean.any() and np.ptp(found.std) == 0 and found.unsure
    assert not model.believing(table[:2]).predict(table).mean.any()


def test_scores_of_a_rank_are_log_speeds():
    """Whatever the spread of speeds is, what is predicted of new candidates has the same."""
    rng = np.random.default_rng(0)
    table = rng.uniform(-1, 1, size=(600, 2)).astype(np.float32)
    for spread in (0.1, 3.0):
        speeds = spread * table.astype(float).sum(axis=1)
        model = RankModel()
        model.fit(table[:300], 2.0 ** -speeds[:300])
        slope = np.polyfit(model.predict(table[300:]).mean, speeds[300:], 1)[0]
        assert slope == pytest.approx(1.0, abs=0.15)
    assert not model.predict(table).unsure and model.believing(table[:1]) is None


def test_a_residual_model_ranks_and_knows_how_sure_it_is():
    """Steps for trees, and a slope that they cannot see between: both together are better than either."""
    rng = np.random.default_rng(0)
    table = rng.uniform(-1, 1, size=(560, 6)).astype(np.float32)
    x = table.astype(float)
    speeds = 1.5 * (x[:, 0] > 0.2) * (x[:, 1] > 0) + (x[:, 2] < -0.3) + 0.8 * x[:, 3]
    frame = FeatureSpace.of(table, [1] * 6)
    trees, process = RankModel(rounds=25), GaussianProcess(frame=frame)
    both = ResidualModel([], lambda seed: RankModel(rounds=25, seed=seed), GaussianProcess(frame=frame))
    off = []
    for model in (both, trees, process):
        model.fit(table[:160], 2.0 ** -speeds[:160])
        off.append(float(np.std(speeds[160:] - model.predict(table[160:]).mean)))
    assert off[0] < min(off[1:])
    assert 0.3 < both.weights[0] < 1.2
    found = both.predict(table)
    surprise = (speeds - speeds[:160].mean() - found.mean)[160:] / found.std[160:]
    assert np.mean(np.abs(surprise) < 1) > 0.6 and np.mean(np.abs(surprise) < 3) > 0.95
    less = both.believing(table[200:201]).predict(table)
    np.testing.assert_allclose(less.mean, found.mean, atol=1e-6)
    assert less.std[200] < found.std[200]


def test_a_mean_that_explains_nothing_loses_its_weight():
    rng = np.random.default_rng(0)
    table = rng.normal(size=(48, 4)).astype(np.float32)
    model = residual()
    model.fit(table, 2.0 ** rng.normal(size=48))
    assert len(model.weights) == 1 and model.weights[0] < 0.35
    model.fit(table[:7], 2.0 ** rng.normal(size=7))
    assert len(model.weights) == 0  # too few to rank by


def test_a_process_learns_how_far_to_trust_other_models():
    rng = np.random.default_rng(0)
    table = rng.uniform(-1, 1, size=(300, 3)).astype(np.float32)
    told = rng.normal(size=(300, 2))  # nothing that the features could tell
    prior = np.array([0.5, 0.5]), np.array([0.25, 0.25])
    for truth in (0.0, 1.0, -1.0):
        speeds = truth * told[:, 0] + 0.3 * table[:, 0]
        process = framed(table)
        process.fit(table[:50], 2.0 ** -speeds[:50], bases=Bases(told[:50], *prior))
        np.testing.assert_allclose(process.coefficients, [truth, 0.0], atol=0.2)
        found = process.predict(table[50:], told[50:])
        assert np.std(found.mean - speeds[50:]) < 0.2
        # Where the others say something extreme, their unknown weights count the more.
        far = process.predict(table[50:52], np.array([[0.0, 0.0], [9.0, 9.0]])).std
        assert far[1] > far[0]
        less = process.believing(table[51:52], np.array([[9.0, 9.0]]))
        assert less.predict(table[51:52], np.array([[9.0, 9.0]])).std[0] < far[1]
    process.fit(table[:50], np.full(50, np.inf), bases=Bases(told[:50], *prior))
    assert process.coefficients.tolist() == [0.5, 0.5]  # nothing was learned
    np.testing.assert_allclose(process.predict(table, told).mean, told.sum(axis=1) / 2)


def test_a_residual_model_starts_from_the_global_one_and_corrects_it():
    table = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    for truth in (1.0, -1.0):
        costs = 2.0 ** (-truth * table[:, 0].astype(float))
        model = ResidualModel([Says()], lambda seed: RankModel(rounds=25, seed=seed), framed(table))
        before = model.predict(table)
        assert np.argsort(before.mean).tolist() == np.argsort(table[:, 0]).tolist()
        assert np.ptp(before.std) == 0 and model.believing(table) is model
        model.fit(table[:6], costs[:6])
        assert len(model.weights) == 1 and (model.weights[0] > 0.5) == (truth > 0)
        model.fit(table[:20], costs[:20])
        assert pairwise_accuracy(model.predict(table[20:]).mean, costs[20:]) > 0.9
