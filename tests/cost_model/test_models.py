"""The models learn a synthetic machine: nests with tiles, and a cost that depends on them."""

import pickle

import numpy as np
import pytest

from hbtvm.cost_model import (
    CostModel,
    Prediction,
    RankModel,
    RegressionModel,
    TransferModel,
    features,
    pairwise_accuracy,
    recall_at_k,
)
from hbtvm.cost_model.encoding.nest import PARALLEL, SERIAL, UNROLLED, VECTORIZED, Access, Loop, Statement
from hbtvm.cost_model.models.gaussian_process import Bases, FeatureSpace, GaussianProcess
from hbtvm.cost_model.models.residual import ResidualModel
from hbtvm.cost_model.models.transfer import agreement


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


class Says(CostModel):
    """A global model that says what is in the first column, in a unit of its own."""

    def __init__(self, unit=1.0):
        self.unit = unit

    def fit(self, features, costs, groups=None, margin=None):
        raise AssertionError("it has learned already")

    def predict(self, features):
        return Prediction.certain(self.unit * np.asarray(features)[:, 0].astype(float))


class Silent(Says):
    """A local model that adds nothing, whatever it is fitted on."""

    def __init__(self):
        super().__init__(0.0)

    def fit(self, features, costs, groups=None, margin=None):
        pass


def residual():
    return ResidualModel([], lambda seed: RankModel(rounds=25, seed=seed), GaussianProcess())


@pytest.mark.parametrize("kind", [RankModel, RegressionModel, GaussianProcess, residual])
def test_a_model_orders_candidates_that_it_never_saw(kind):
    table, costs = candidates(0, 200)
    others, truth = candidates(1, 300)
    model = kind()
    assert isinstance(model, CostModel)
    model.fit(table, costs)
    scores = model.predict(others).mean
    assert scores.shape == (300,) and scores.dtype == np.float64
    assert pairwise_accuracy(scores, truth) > 0.9


def test_the_same_seed_gives_the_same_model():
    table, costs = candidates(0, 150)
    scores = []
    for _ in range(2):
        model = RankModel(seed=3, pairs=64)
        model.fit(table, costs)
        scores.append(model.predict(table).mean)
    assert np.array_equal(*scores)


def test_costs_are_compared_only_within_a_group():
    table, costs = candidates(0, 200)
    groups = np.arange(200) % 2
    model, again = RankModel(), RankModel()
    model.fit(table, costs, groups)
    again.fit(table, np.where(groups, costs * 1e6, costs), groups)
    assert np.array_equal(model.predict(table).mean, again.predict(table).mean)


def test_a_big_group_is_learned_from_a_sample_of_its_pairs():
    table, costs = candidates(0, 400)
    others, truth = candidates(1, 300)
    model = RankModel(pairs=64)
    model.fit(table, costs)
    assert pairwise_accuracy(model.predict(others).mean, truth) > 0.9


@pytest.mark.parametrize("kind", [RankModel, RegressionModel, GaussianProcess, residual])
def test_failed_candidates_rank_last(kind):
    table, costs = candidates(0, 300)
    share = table[:, -1]
    fails = share > np.quantile(share, 0.8)
    model = kind()
    model.fit(table, np.where(fails, np.inf, costs))
    scores = model.predict(table).mean
    assert pairwise_accuracy(scores, fails) > 0.95


@pytest.mark.parametrize("kind", [RankModel, RegressionModel, GaussianProcess, residual])
@pytest.mark.parametrize("costs", [[], [1.0], [1.0, 1.0, 1.0], [np.inf, np.inf], [np.nan, np.inf]], ids=str)
def test_nothing_to_learn_gives_zeros(kind, costs):
    table, _ = candidates(0, 3)
    for model in (kind(), TransferModel([], kind())):
        model.fit(table[: len(costs)], costs)
        assert np.array_equal(model.predict(table).mean, np.zeros(3))
        assert model.predict(table[:0]).mean.shape == (0,)


def test_a_fit_forgets_the_one_before():
    table, costs = candidates(0, 100)
    model = RankModel()
    model.fit(table, costs)
    assert model.predict(table).mean.any()
    model.fit(table, np.ones(100))
    assert not model.predict(table).mean.any()


def test_a_fitted_model_can_be_stored():
    table, costs = candidates(0, 100)
    model = TransferModel([foreign_model()], RankModel())
    model.fit(table, costs)
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict(table).mean, model.predict(table).mean)


def test_features_that_are_not_finite_are_unknown_rather_than_fatal():
    table, costs = candidates(0, 100)
    table[3, 5], table[4, 6] = np.inf, np.nan
    model = RankModel()
    model.fit(table, costs)
    assert np.isfinite(model.predict(table).mean).all()


def test_lengths_that_disagree_are_refused():
    table, costs = candidates(0, 10)
    with pytest.raises(ValueError, match="features have 10 rows, costs shape"):
        RankModel().fit(table, costs[:9])
    with pytest.raises(ValueError, match=r"shape \(n, D\)"):
        RankModel().fit(table[0], costs)


def test_a_model_learns_what_its_margin_lacks():
    table, costs = candidates(0, 200)
    margin = -np.log2(costs)
    model = RankModel()
    model.fit(table, costs, margin=margin)
    # The margin orders nearly all pairs already, and by far: little is left to add.
    assert np.ptp(model.predict(table).mean) < 0.03 * np.ptp(margin)


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
        local, both = RankModel(), TransferModel([global_model], RankModel())
        local.fit(table, costs)
        both.fit(table, costs)
        result.append([pairwise_accuracy(model.predict(others).mean, truth) for model in (both, local)])
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
    class Noise(Says):
        def predict(self, features):
            return Prediction.certain(3 * np.random.default_rng(len(features)).normal(size=len(features)))

    both, local = accuracies(Noise(), [48, 64, 128])
    assert (both > local - 0.05).all()


def test_the_weight_follows_the_evidence():
    table, costs = candidates(0, 64)
    model = TransferModel([foreign_model()], RankModel())
    model.fit(table, np.full(64, np.inf))
    assert model.weight == 1.0
    model.fit(table, costs)
    assert model.weight > 0.8
    model.fit(table, 1 / costs)
    assert model.weight == 0.0


def test_a_global_model_alone_carries_a_run_without_successes():
    table, _ = candidates(0, 20)
    known = foreign_model()
    model = TransferModel([known], RankModel())
    model.fit(table, np.full(20, np.inf))
    assert np.array_equal(model.predict(table).mean, known.predict(table).mean)


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


def test_several_models_carry_over_to_another_workload():
    table, costs = candidates(0, 64)
    known = [RankModel(), GaussianProcess()]
    for model in known:
        model.fit(*candidates(5, 200, 700))
    both = TransferModel(known, GaussianProcess())
    mean = np.mean([model.predict(table).mean for model in known], axis=0)
    assert np.allclose(both.predict(table).mean, mean, atol=1e-5)
    both.fit(table, costs)
    assert both.weight > 0.8
    both.fit(table, 1 / costs)
    assert both.weight == 0
    others, truth = candidates(99, 300)
    both.fit(table[:6], costs[:6])
    alone = GaussianProcess()
    alone.fit(table[:6], costs[:6])
    helped, unhelped = (pairwise_accuracy(model.predict(others).mean, truth) for model in (both, alone))
    assert helped > unhelped


@pytest.mark.parametrize("local", [GaussianProcess, RegressionModel, RankModel])
def test_a_global_models_scores_are_put_into_measured_units(local):
    """Whatever a global model counts in, what it adds is as far apart as what was measured."""
    table = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    costs = 2.0 ** (-2 * table[:, 0].astype(float))
    weights = []
    for unit in (1.0, 100.0):
        model = TransferModel([Says(unit)], local())
        model.fit(table, costs)
        weights.append(model.weight * unit)
    np.testing.assert_allclose(weights, 2.0, rtol=1e-3)
    model = TransferModel([Says(-1.0)], local())
    model.fit(table, costs)
    assert model.weight == 0
    # Those measured look nearly alike to this one, which is no reason to believe the others far apart.
    model = TransferModel([Says(1e-6)], local())
    model.fit(table, costs)
    assert model.weight <= 4


def test_of_several_global_models_each_has_a_weight_of_its_own():
    table = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
    costs = 2.0 ** -table[:, 0].astype(float)
    model = TransferModel([Says(3.0), Says(-1.0)], Silent())
    assert np.allclose(model.predict(table).mean, table[:, 0])
    model.fit(table, costs)
    assert model.weight == pytest.approx(1 / 3, rel=1e-3)
    assert np.allclose(model.predict(table).mean, 0.5 * table[:, 0], rtol=1e-3)


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


def test_local_models_are_kept_while_they_have_seen_most_rows():
    rng = np.random.default_rng(0)
    table = rng.normal(size=(40, 3)).astype(np.float32)
    costs = 2.0 ** table.sum(axis=1).astype(float)
    made = []

    def make(seed):
        made.append(seed)
        return RankModel(rounds=5, seed=seed)

    model = ResidualModel([], make, framed(table))
    for count, fits in ((7, 0), (16, 1), (18, 1), (20, 1), (21, 2), (21, 2)):
        model.fit(table[:count], costs[:count])
        assert len(made) == 4 * fits, count
    changed = costs[:21] * np.r_[2.0, np.ones(20)]
    model.fit(table[:21], changed)  # not the same rows: nothing is kept
    assert len(made) == 12
    alone = ResidualModel([], make, framed(table))
    alone.fit(table[:21], changed)
    np.testing.assert_array_equal(model.predict(table).mean, alone.predict(table).mean)
