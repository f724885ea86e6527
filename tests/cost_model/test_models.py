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
)
from hbtvm.cost_model.encoding.nest import PARALLEL, SERIAL, UNROLLED, VECTORIZED, Access, Loop, Statement
from hbtvm.cost_model.models.gaussian_process import FeatureSpace, GaussianProcess
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


def framed(table):
    return GaussianProcess(frame=FeatureSpace.of(table, [1] * table.shape[1]))


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
