"""Flattened loop contexts, encoders, and the models' opinions."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from hbtvm.cost_model import FEATURE_NAMES, pairwise_accuracy
from hbtvm.cost_model.acquisition import merit
from hbtvm.cost_model.base import Prediction
from hbtvm.cost_model.create import maker
from hbtvm.cost_model.encoding.encode import Encoder
from hbtvm.cost_model.encoding.flat import CONTEXT, FLAT_NAMES, LEVELS, STATEMENTS, flat_features
from hbtvm.cost_model.encoding.nest import UNROLLED, VECTORIZED, Access, Loop, Statement
from hbtvm.cost_model.models.bootstrap import Bootstrap
from hbtvm.cost_model.models.rank_xgboost import RegressionModel
from hbtvm.cost_model.models.transfer import TransferModel
from hbtvm.schedules.space import columns
from tests.fake_programs import cost
from tests.fake_tuning import SPACE, loops

CONFIGS = SPACE.sample(np.random.default_rng(0), 300)
COSTS = np.array([cost(config) for config in CONFIGS])
COLUMNS = columns(CONFIGS)
NESTS = [loops(config) for config in CONFIGS]


def at(row: np.ndarray, name: str, statement: int, level: int) -> float:
    return float(row[FLAT_NAMES.index(f"{name}@{statement}.{level}")])


def test_each_loop_has_its_own_columns() -> None:
    read = Access("x", 4, (16, 1), gather=True, span=64)
    write = Access("out", 4, (16, 0), store=True)
    nests = []
    for size in (2, 4):
        outer = Loop(8, number=1)
        inner = Loop(4 * size, VECTORIZED, number=2)
        first = Statement((outer, inner), {"add": 3}, (read, write), lane_bytes=4)
        nests.append((first, Statement((outer, Loop(size // 2, UNROLLED, number=3)), {}, (write,))))
    table = flat_features(nests)
    assert table.shape == (2, len(FLAT_NAMES)) == (2, STATEMENTS * LEVELS * len(CONTEXT))
    row = table[1]
    assert [at(row, "extent", 0, level) for level in range(4)] == pytest.approx(
        [np.log2(9), np.log2(17), 0, 0]
    )
    assert at(row, "vectorized", 0, 1) == 4.0
    assert at(row, "unrolled", 1, 1) == 1.0
    assert at(row, "stride", 0, 0) == pytest.approx(np.log2(1 + 64))
    assert at(row, "gathers", 0, 0) == at(row, "still", 0, 1) == 1.0
    assert at(row, "operations", 0, 2) == 2.0
    assert [at(row, "present", 0, level) for level in range(4)] == [1, 1, 1, 0]
    # The outer loop is one loop around both; the inner ones are two.
    assert [at(row, "shared", 1, level) for level in range(3)] == [1, 0, 0]
    assert not at(row, "shared", 0, 0)


def test_what_is_too_deep_keeps_its_body() -> None:
    deep = Statement(tuple(Loop(2) for _ in range(20)), {"add": 7}, ())
    row = flat_features([(deep,) * (STATEMENTS + 2)])[0]
    assert at(row, "operations", STATEMENTS - 1, LEVELS - 1) == 3.0
    assert at(row, "outer", 0, LEVELS - 2) == pytest.approx(np.log2(1 + 2 ** (LEVELS - 2)))


def test_of_many_statements_those_with_the_most_work_are_kept() -> None:
    small, large = (Statement((Loop(n),), {"add": 1}, ()) for n in (2, 100))
    nest = (small, large) * STATEMENTS
    row = flat_features([nest])[0]
    assert {at(row, "extent", place, 0) for place in range(STATEMENTS)} == {np.float32(np.log2(101))}


def test_one_configuration_is_described_as_among_others() -> None:
    together = flat_features(NESTS)
    alone = [flat_features([nest])[0] for nest in NESTS[:20]]
    np.testing.assert_allclose(together[:20], alone, rtol=1e-6)
    assert np.isfinite(together).all()
    assert flat_features([]).shape == (0, len(FLAT_NAMES))


def test_statements_share_the_loops_around_both() -> None:
    """Of programs with many statements, those that are left out, and loops beyond those that are kept."""
    rng = np.random.default_rng(0)
    nests = []
    for _ in range(40):
        statements: list[Statement] = []
        around: tuple[Loop, ...] = ()
        for place in range(int(rng.integers(0, 10))):
            common = around[: rng.integers(0, len(around) + 1)]
            new = tuple(
                Loop(int(rng.integers(1, 6)), number=1 + 20 * place + i) for i in range(rng.integers(9))
            )
            around = (*common, *new)
            statements.append(Statement(around, {"add": float(rng.integers(3))}, ()))
        nests.append(tuple(statements))
    together = flat_features(nests)
    for nest, row in zip(nests, together, strict=True):
        np.testing.assert_array_equal(flat_features([nest])[0], row)
        work = [
            max(1.0, *one.operations.values()) * np.prod([loop.extent for loop in one.loops]) for one in nest
        ]
        kept = sorted(sorted(range(len(nest)), key=lambda i: (-work[i], i))[:STATEMENTS])
        for place in range(STATEMENTS):
            loops_of = nest[kept[place]].loops if place < len(kept) else ()
            before = nest[kept[place - 1]].loops if 0 < place < len(kept) else ()
            shared = 0
            while shared < min(len(loops_of), len(before)) and loops_of[shared] == before[shared]:
                shared += 1
            shown = [at(row, "shared", place, level) for level in range(LEVELS)]
            assert shown == [1.0] * min(shared, LEVELS - 1) + [0.0] * (LEVELS - min(shared, LEVELS - 1))
            present = min(len(loops_of), LEVELS - 1) + 1 if place < len(kept) else 0
            assert [at(row, "present", place, level) for level in range(LEVELS)] == [
                float(level < present) for level in range(LEVELS)
            ]


def test_knobs_of_several_spaces_share_columns() -> None:
    encode = Encoder("knobs", [{"a": (1, 2), "mode": ("x", "y")}, {"mode": ("y", "z"), "b": (False, True)}])
    table = encode({"mode": np.array(["z", "x"]), "b": np.array([True, False])}, 2)
    # a, mode == x, y, z, b
    np.testing.assert_array_equal(table, [[np.nan, 0, 0, 1, 1], [np.nan, 1, 0, 0, 0]])


@pytest.mark.parametrize(("kind", "width"), [("relation", len(FEATURE_NAMES)), ("flat", len(FLAT_NAMES))])
def test_encoders_by_name(kind: str, width: int) -> None:
    encode = Encoder(kind)
    assert encode(COLUMNS, len(CONFIGS), loops=encode.loops(NESTS)).shape == (len(CONFIGS), width)
    with pytest.raises(ValueError, match="need the candidates' loop features"):
        encode(COLUMNS, len(CONFIGS))
    with pytest.raises(ValueError, match="no kind of features 'smell'"):
        Encoder("smell")


@pytest.mark.parametrize("kind", ["rank_process", "rank", "regression", "gaussian_process", "tree_gru"])
def test_models_by_name_learn_the_order(kind: str) -> None:
    if kind == "tree_gru":
        pytest.importorskip("torch", reason="PyTorch is not installed")
    table = flat_features(NESTS)
    model = maker(kind)([])
    assert not model.predict(table[:3]).mean.any()
    model.fit(table[:100], COSTS[:100])
    scores = model.predict(table[100:]).mean
    assert pairwise_accuracy(scores, COSTS[100:]) > 0.85
    again = maker(kind)([])
    again.fit(table[:100], COSTS[:100])
    np.testing.assert_array_equal(again.predict(table[100:]).mean, scores)


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="PyTorch is not installed")
def test_tree_gru_takes_groups_margins_and_failures() -> None:
    table = flat_features(NESTS)
    costs = np.concatenate([COSTS[:60], 50 * COSTS[60:100]])
    costs[5] = np.inf
    groups = np.repeat([0, 1], [60, 40])
    model = maker("tree_gru")([])
    model.fit(table[:100], costs, groups)
    assert pairwise_accuracy(model.predict(table[100:]).mean, COSTS[100:]) > 0.8
    # A margin that says all there is to know leaves little to learn.
    told = maker("tree_gru")([])
    told.fit(table[:100], COSTS[:100], margin=-np.log2(COSTS[:100]))
    assert np.ptp(told.predict(table).mean) < np.ptp(model.predict(table).mean)
    model.fit(table[:5], np.ones(5))
    assert not model.predict(table[:3]).mean.any()
    with pytest.raises(ValueError, match="flattened loop features"):
        model.fit(table[:5, :7], np.ones(5))


def test_bootstrap_is_surer_of_what_it_has_seen() -> None:
    table = Encoder("relation").loops(NESTS)
    near = np.argsort(COLUMNS["a"], kind="stable")[:100]  # narrow vectors only
    far = np.argsort(-COLUMNS["a"], kind="stable")[:100]
    model = Bootstrap(lambda seed: RegressionModel(seed=seed))
    model.fit(table[near], COSTS[near])
    found = model.predict(table)
    assert found.mean.shape == found.std.shape == (len(CONFIGS),)
    assert found.std[near].mean() < found.std[far].mean()
    # A shared model shifts all opinions alike.
    shifted = TransferModel([model], model).predict(table)
    np.testing.assert_allclose(shifted.std, found.std)
    np.testing.assert_allclose(shifted.mean, 2 * found.mean)
    assert model.believing(table[:1]) is None


def test_merits() -> None:
    found = Prediction(np.array([0.0, 1.0, -3.0]), np.array([1.0, 0.5, 2.0]))
    assert merit("mean", found, 0.5).tolist() == found.mean.tolist()
    assert merit("ucb", found, 0.5).tolist() == [1.0, 1.5, -1.0]
    drawn = found.mean + found.std * np.random.default_rng(0).normal(size=(400_000, 3))
    expected = np.maximum(drawn - 0.5, 0.0).mean(axis=0)
    np.testing.assert_allclose(np.exp(merit("ei", found, 0.5)), expected, rtol=0.02)
    # Where no draw would ever reach the best, what is nearer still counts for more.
    far = np.linspace(-50, 0, 200)
    assert (np.diff(merit("ei", Prediction(far, np.ones_like(far)), 0.0)) > 0).all()
    # Without a standard deviation the mean is all there is, and one that is sure is no matter for a division.
    for kind in ("mean", "ucb", "ei"):
        assert merit(kind, Prediction.certain([1.0, 3.0]), 2.0).tolist() == [1.0, 3.0]
    assert np.isfinite(merit("ei", Prediction(far, np.r_[np.zeros(199), 1.0]), 0.0)).all()
    with pytest.raises(ValueError, match="no acquisition 'max'"):
        merit("max", found, 0.0)


def test_sizes_in_which_workloads_differ_are_told_apart() -> None:
    workloads = [
        {"rows": rows, "trees": 8, "wide": rows > 1, "form": "x", **more}
        for rows, more in ((1, {}), (1000, {"depth": 3}))
    ]
    spaces = [{knob.name: knob.choices for knob in SPACE.knobs}]
    alone = Encoder("knobs", spaces)(COLUMNS, len(CONFIGS))
    encode = Encoder("knobs", spaces, workloads)
    for workload in workloads:
        table = encode(COLUMNS, len(CONFIGS), workload)
        np.testing.assert_array_equal(table[:, :-1], alone)
        np.testing.assert_allclose(table[:, -1], np.log2(1 + workload["rows"]))
        assert sum(encode.widths) == table.shape[1]
    assert np.isnan(encode(COLUMNS, len(CONFIGS), {"rows": "many"})[:, -1]).all()
    assert Encoder("knobs", spaces, workloads[:1]).widths == Encoder("knobs", spaces).widths
    # Loops show by themselves how many rows there are.
    assert Encoder("joint", spaces, workloads).widths == Encoder("joint", spaces).widths


def test_joint_features_are_relations_then_choices() -> None:
    spaces = [{knob.name: knob.choices for knob in SPACE.knobs}]
    encoders = [Encoder(kind, spaces) for kind in ("relation", "knobs", "joint")]
    parts = [encode(COLUMNS, len(CONFIGS), loops=encode.loops(NESTS)) for encode in encoders]
    np.testing.assert_array_equal(np.concatenate(parts[:2], axis=1), parts[2])
    for kind, part in zip(("relation", "knobs", "joint"), parts, strict=True):
        assert sum(Encoder(kind, spaces).widths) == part.shape[1]
    assert len(Encoder("joint", spaces).widths) == 1 + len(SPACE.knobs)
