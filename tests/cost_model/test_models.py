"""The models learn a synthetic machine: nests with tiles, and a cost that depends on them."""

import pickle

import numpy as np
import pytest

from hbtvm.cost_model import (
    CostModel,
    RankModel,
    RegressionModel,
    TransferModel,
    features,
    pairwise_accuracy,
    recall_at_k,
)
from hbtvm.cost_model.blend import Blend
from hbtvm.cost_model.gaussian_process import FeatureSpace, GaussianProcess
from hbtvm.cost_model.nest import PARALLEL, SERIAL, UNROLLED, VECTORIZED, Access, Loop, Statement
from hbtvm.cost_model.transfer import Remembering, agreement


def candidates(seed, n, trees=500, columns=28):
    """Features (n, D) and costs (n,) of random tilings of one workload."""
    rng = np.random.default_rng(seed)
    rows, nodes = 8192, 32
    tile = 2 ** rng.integers(4, 11, n)
    width = 2 ** rng.integers(0, 5, n)
    unroll = 2 ** rng.integers(0, 5, n)
    threads = rng.integers(0, 2, n)
    nests = []
    for t, w, u, parallel in zip(tile.tolist(), width.tolist(), unroll.tolist(), threads, strict=True):
        loops = (
            Loop(rows // t, PARALLEL if parallel else SERIAL),
            Loop(trees),
            Loop(nodes // u),
            Loop(u, UNROLLED),
            Loop(max(t // w, 1)),
            Loop(w, VECTORIZED),
        )
        accesses = (
            Access("x", 4, (t * columns, 0, 0, 0, w, 1)),
            Access("table", 4, (0, nodes, u, 1, 0, 0)),
            Access("scratch", 4, (0, 0, 0, 0, w, 1), store=True),
        )
        nests.append((Statement(loops, {"compare": 1, "bit": 1}, accesses),))
    spilled = np.maximum(unroll * np.maximum(width * 4 / 64, 1) / 16, 1)
    missed = 1 + 2.0 * (tile * 8 > 8192) + 1.5 * (trees * nodes * 4 > 16384) * 64 / tile
    instructions = rows * trees * nodes / width * (1 + 2 / unroll) * spilled
    costs = 1e-9 * instructions * missed / (1 + 0.8 * threads) + 1e-6 * rows / tile
    return features(nests), costs


def blend():
    return Blend([RankModel(), GaussianProcess()])


@pytest.mark.parametrize("kind", [RankModel, RegressionModel, GaussianProcess, blend])
def test_a_model_orders_candidates_that_it_never_saw(kind):
    table, costs = candidates(0, 200)
    others, truth = candidates(1, 300)
    model = kind()
    assert isinstance(model, CostModel)
    model.fit(table, costs)
    scores = model.predict(others)
    assert scores.shape == (300,) and scores.dtype == np.float32
    assert pairwise_accuracy(scores, truth) > 0.9


def test_the_same_seed_gives_the_same_model():
    table, costs = candidates(0, 150)
    scores = []
    for _ in range(2):
        model = RankModel(seed=3, pairs=64)
        model.fit(table, costs)
        scores.append(model.predict(table))
    assert np.array_equal(*scores)


def test_costs_are_compared_only_within_a_group():
    table, costs = candidates(0, 200)
    groups = np.arange(200) % 2
    model, again = RankModel(), RankModel()
    model.fit(table, costs, groups)
    again.fit(table, np.where(groups, costs * 1e6, costs), groups)
    assert np.array_equal(model.predict(table), again.predict(table))


def test_a_big_group_is_learned_from_a_sample_of_its_pairs():
    table, costs = candidates(0, 400)
    others, truth = candidates(1, 300)
    model = RankModel(pairs=64)
    model.fit(table, costs)
    assert pairwise_accuracy(model.predict(others), truth) > 0.9


@pytest.mark.parametrize("kind", [RankModel, RegressionModel, GaussianProcess, blend])
def test_failed_candidates_rank_last(kind):
    table, costs = candidates(0, 300)
    share = table[:, -1]
    fails = share > np.quantile(share, 0.8)
    model = kind()
    model.fit(table, np.where(fails, np.inf, costs))
    scores = model.predict(table)
    assert pairwise_accuracy(scores, fails) > 0.95


@pytest.mark.parametrize("kind", [RankModel, RegressionModel, GaussianProcess, blend])
@pytest.mark.parametrize("costs", [[], [1.0], [1.0, 1.0, 1.0], [np.inf, np.inf], [np.nan, np.inf]], ids=str)
def test_nothing_to_learn_gives_zeros(kind, costs):
    table, _ = candidates(0, 3)
    for model in (kind(), TransferModel(None, kind())):
        model.fit(table[: len(costs)], costs)
        assert np.array_equal(model.predict(table), np.zeros(3))
        assert model.predict(table[:0]).shape == (0,)


def test_a_fit_forgets_the_one_before():
    table, costs = candidates(0, 100)
    model = RankModel()
    model.fit(table, costs)
    assert model.predict(table).any()
    model.fit(table, np.ones(100))
    assert not model.predict(table).any()


def test_a_fitted_model_can_be_stored():
    table, costs = candidates(0, 100)
    model = TransferModel(foreign_model(), RankModel())
    model.fit(table, costs)
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict(table), model.predict(table))


def test_features_that_are_not_finite_are_unknown_rather_than_fatal():
    table, costs = candidates(0, 100)
    table[3, 5], table[4, 6] = np.inf, np.nan
    model = RankModel()
    model.fit(table, costs)
    assert np.isfinite(model.predict(table)).all()


def test_lengths_that_disagree_are_refused():
    table, costs = candidates(0, 10)
    with pytest.raises(ValueError, match="features have 10 rows, costs shape"):
        RankModel().fit(table, costs[:9])
    with pytest.raises(ValueError, match=r"shape \(n, D\)"):
        RankModel().fit(table[0], costs)


def test_a_model_learns_what_its_margin_lacks():
    table, costs = candidates(0, 200)
    margin = -np.log(costs) * 50
    model = RankModel()
    model.fit(table, costs, margin=margin)
    # The margin orders nearly all pairs already, and by far: little is left to add.
    assert np.ptp(model.predict(table)) < 0.03 * np.ptp(margin)


def foreign_model(sign=1.0):
    """A global model of three other workloads (of their reverse, where `sign` is -1)."""
    tables, costs = zip(
        *(
            candidates(10 + i, 200, trees, width)
            for i, (trees, width) in enumerate([(64, 10), (200, 90), (1500, 28)])
        ),
        strict=True,
    )
    model = RankModel()
    times = np.concatenate(costs) if sign > 0 else 1 / np.concatenate(costs)
    model.fit(np.concatenate(tables), times, np.repeat(np.arange(3), 200))
    return model


def accuracies(global_model, counts):
    """Held-out accuracy of transfer and of a local model alone, over numbers of measurements."""
    others, truth = candidates(99, 300)
    result = []
    for seed, count in enumerate(counts):
        table, costs = candidates(20 + seed, count)
        local, both = RankModel(), TransferModel(global_model, RankModel())
        local.fit(table, costs)
        both.fit(table, costs)
        result.append([pairwise_accuracy(model.predict(others), truth) for model in (both, local)])
    return np.array(result).T


def test_transfer_helps_where_there_are_few_measurements():
    both, local = accuracies(foreign_model(), [0, 4, 8, 16])
    assert both[0] > 0.8 and local[0] == 0.5
    assert (both > local).all()
    assert both.mean() > local.mean() + 0.1


def test_a_misleading_global_model_is_overruled():
    both, local = accuracies(foreign_model(-1.0), [32, 64, 128])
    assert (both > local - 0.02).all()


def test_an_uninformed_global_model_hurts_little():
    class Noise:
        def predict(self, features):
            return np.random.default_rng(len(features)).normal(size=len(features)).astype(np.float32) * 3

    both, local = accuracies(Noise(), [48, 64, 128])
    assert (both > local - 0.05).all()


def test_the_weight_follows_the_evidence():
    table, costs = candidates(0, 64)
    model = TransferModel(foreign_model(), RankModel())
    model.fit(table, np.full(64, np.inf))
    assert model.weight == 1.0
    model.fit(table, costs)
    assert model.weight > 0.8
    model.fit(table, 1 / costs)
    assert model.weight == 0.0


def test_a_global_model_alone_carries_a_run_without_successes():
    table, _ = candidates(0, 20)
    known = foreign_model()
    model = TransferModel(known, RankModel())
    model.fit(table, np.full(20, np.inf))
    assert np.array_equal(model.predict(table), known.predict(table))


def test_a_blend_weighs_opinions_not_units():
    """A member counts the same whatever its scores are measured in, and none that has no opinion."""

    class Fixed:
        def __init__(self, column, scale):
            self.column, self.scale = column, scale

        def fit(self, features, costs, groups=None, margin=None):
            pass

        def predict(self, features):
            return np.asarray(features)[:, self.column] * np.float32(self.scale)

    table, costs = np.random.default_rng(0).normal(size=(64, 2)).astype(np.float32), np.ones(64)
    models = [Blend([Fixed(0, 1), Fixed(1, scale)]) for scale in (1, 1000)]
    for model in models:
        model.fit(table, costs)
    np.testing.assert_allclose(*(model.predict(table) for model in models), rtol=1e-4)
    silent = Blend([Fixed(0, 1), Fixed(1, 0)])
    silent.fit(table, costs)
    assert np.array_equal(np.argsort(silent.predict(table)), np.argsort(table[:, 0]))


def test_agreement_is_that_of_the_order():
    score = np.array([3.0, 2.0, 1.0, 0.0])
    group = np.zeros(4, dtype=np.intp)
    assert agreement(score, np.array([1.0, 2.0, 3.0, 4.0]), group) == 1
    assert agreement(score, np.array([4.0, 3.0, 2.0, 1.0]), group) == -1
    assert agreement(score, np.array([1.0, 2.0, 3.0, np.inf]), group) == 1
    # Costs that are the same but for noise bear no claim out, nor do they belie it.
    assert agreement(score, np.array([1.0, 1.02, 1.01, 1.0]), group) == 0
    assert 0 < agreement(score, np.array([1.0, 1.02, 1.01, 2.0]), group) < 1
    # Nothing to compare, or no claim: the benefit of the doubt.
    assert agreement(score, np.full(4, np.inf), group) == 1
    assert agreement(np.zeros(4), np.array([4.0, 3.0, 2.0, 1.0]), group) == 1
    # Pairs of two groups don't count, and pairs that are further apart count more.
    assert agreement(score, np.array([2.0, 3.0, 0.1, 0.2]), np.array([0, 0, 1, 1])) == 1
    assert 0 < agreement(np.array([9.0, 1.0, 0.0]), np.array([1.0, 3.0, 2.0]), group[:3]) < 1


def test_a_blend_carries_over_to_another_workload():
    table, costs = candidates(0, 64)
    known = blend()
    known.fit(*candidates(5, 200, 700))
    both = TransferModel(known, GaussianProcess())
    assert np.allclose(both.predict(table), known.predict(table), atol=1e-5)
    assert both.weigh(table, costs) > 0.8
    assert both.weigh(table, 1 / costs) == 0
    others, truth = candidates(99, 300)
    both.fit(table[:6], costs[:6])
    alone = GaussianProcess()
    alone.fit(table[:6], costs[:6])
    assert pairwise_accuracy(both.predict(others), truth) > pairwise_accuracy(alone.predict(others), truth)


def test_what_was_asked_before_is_not_computed_again():
    asked = []

    class Slow:
        def predict(self, features):
            asked.append(len(features))
            return np.asarray(features)[:, 0]

    table = np.random.default_rng(0).normal(size=(300, 2)).astype(np.float32)
    model = Remembering(Slow(), most=2)
    for same in (table, table, table[:5], table[:5], table.copy(), table, table.copy(), table):
        assert np.array_equal(model.predict(same), same[:, 0])
    assert asked == [300, 5, 5, 300, 300, 300]


class Says:
    """A global model that says what is in the first column, in a unit of its own."""

    def __init__(self, unit=1.0):
        self.unit = unit

    def predict(self, features):
        return np.asarray(features)[:, 0] * np.float32(self.unit)


@pytest.mark.parametrize("local", [GaussianProcess, RegressionModel])
def test_a_global_models_scores_are_put_into_measured_units(local):
    """Whatever a global model counts in, what it adds is as far apart as what was measured."""
    table = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    costs = 2.0 ** (-2 * table[:, 0].astype(float))
    weights = []
    for unit in (1.0, 100.0):
        model = TransferModel(Says(unit), local())
        model.fit(table, costs)
        weights.append(model.weight * unit)
    np.testing.assert_allclose(weights, 2.0, rtol=1e-3)
    model = TransferModel(Says(-1.0), local())
    model.fit(table, costs)
    assert model.weight == 0
    # Those measured look nearly alike to this one, which is no reason to believe the others far apart.
    model = TransferModel(Says(1e-6), local())
    model.fit(table, costs)
    assert model.weight <= 4


def test_of_several_global_models_each_has_a_weight_of_its_own():
    table = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    costs = 2.0 ** -table[:, 0].astype(float)
    model = TransferModel(Blend([Says(3.0), Says(-1.0)]), GaussianProcess())
    assert np.allclose(model.predict(table), table[:, 0])
    assert model.weigh(table, costs) == pytest.approx(1 / 3, rel=1e-3)
    assert np.allclose(model.predict(table), 0.5 * table[:, 0], rtol=1e-3)


def framed(table):
    return GaussianProcess(frame=FeatureSpace.of(table, [1] * table.shape[1]))


def test_a_process_learns_which_features_matter():
    """Of ten columns one decides: found when each is a block, not when all of them are one."""
    rng = np.random.default_rng(0)
    table = rng.uniform(-1, 1, size=(430, 10)).astype(np.float32)
    costs = 2.0 ** np.sin(4 * table[:, 3].astype(float))
    found = []
    for model in (framed(table), GaussianProcess()):
        model.fit(table[:30], costs[:30])
        found.append(pairwise_accuracy(model.predict(table[30:]), costs[30:]))
    assert found[0] > 0.9 > found[1]


def test_a_process_knows_how_sure_it_is():
    rng = np.random.default_rng(0)
    table = rng.uniform(-1, 1, size=(440, 2)).astype(np.float32)
    speeds = np.sin(3 * table[:, 0]) + table[:, 1] ** 2
    model = framed(table)
    model.fit(table[:40], 2.0 ** -speeds[:40].astype(float))
    mean, deviation = model.expect(table)
    assert deviation[:40].max() < np.median(deviation[40:])
    off = (speeds - speeds[:40].mean() - mean)[40:] / deviation[40:]
    assert np.mean(np.abs(off) < 1) > 0.6 and np.mean(np.abs(off) < 3) > 0.97
    # What is believed to turn out as expected changes no score, but takes its surroundings' doubt.
    unsure = int(np.argmax(deviation))
    again, less = model.expect(table, table[unsure][None])
    np.testing.assert_allclose(again, mean, atol=1e-6)
    assert less[unsure] < 0.3 * deviation[unsure] and (less <= deviation + 1e-6).all()


def test_a_process_compares_only_within_groups():
    """One group is measured at its slow end and one at its fast end: what both say is still found."""
    rng = np.random.default_rng(0)
    table = rng.uniform(-1, 1, size=(260, 2)).astype(np.float32)
    speeds = 2 * table[:, 0].astype(float)
    groups = (table[:, 0] > 0).astype(int)
    costs = 2.0 ** (10.0 * groups - speeds)
    model = framed(table)
    model.fit(table[:60], costs[:60], groups[:60])
    assert pairwise_accuracy(model.predict(table[60:]), -speeds[60:]) > 0.9


def test_of_many_measurements_a_process_keeps_the_fastest():
    rng = np.random.default_rng(0)
    table = rng.uniform(-1, 1, size=(600, 2)).astype(np.float32)
    costs = 2.0 ** np.sin(9 * table.astype(float)).sum(axis=1)
    model = GaussianProcess(frame=FeatureSpace.of(table, [1, 1]), most=60)
    model.fit(table, costs)
    best = np.argsort(costs)[:20]
    _, deviation = model.expect(table)
    assert deviation[best].mean() < 0.7 * deviation.mean()
    assert recall_at_k(model.predict(table), costs, 30) > 0.5


def test_a_process_without_a_success_has_no_opinion():
    table, _ = candidates(0, 20)
    model = GaussianProcess()
    model.fit(table, np.full(20, np.inf))
    mean, deviation = model.expect(table)
    assert not mean.any() and np.ptp(deviation) == 0
