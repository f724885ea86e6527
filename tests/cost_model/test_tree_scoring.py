"""Scores of loop trees: their nodes, and kernels that score them as PyTorch does."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

from hbtvm.compiler.recursion import tree_gru as compiled
from hbtvm.cost_model.create import maker, sources
from hbtvm.cost_model.encoding.flat import CONTEXT, FLAT_NAMES, LEVELS, STATEMENTS, flat_features
from hbtvm.cost_model.encoding.loop_trees import LoopTrees, Weights, loop_trees
from hbtvm.cost_model.encoding.nest import Access, Loop, Nest, Statement
from hbtvm.cost_model.models.gaussian_process import FeatureSpace
from hbtvm.errors import BuildError
from hbtvm.tuning.choices import Choices
from hbtvm.tuning.learning.learner import Learner
from tests.fake_programs import cost
from tests.fake_tuning import SPACE, loops, task

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
from hbtvm.cost_model.models.tree_gru import TreeGRU  # noqa: E402 (needs it)


def nest(rng: np.random.Generator) -> Nest:
    """Statements of which neighbours share some of their outer loops."""
    made: list[Statement] = []
    around: tuple[Loop, ...] = ()
    for number in range(int(rng.integers(0, 9))):
        depth, common = int(rng.integers(0, 16)), int(rng.integers(0, len(around) + 1))
        new = (Loop(int(rng.integers(1, 9)), int(rng.integers(4)), 100 * number + i) for i in range(depth))
        around = (*around[:common], *list(new)[common:])
        strides = tuple(int(one) for one in rng.integers(0, 9, len(around)))
        made.append(Statement(around, {"add": float(rng.integers(4))}, (Access("x", 4, strides),)))
    return tuple(made)


@functools.cache
def table() -> np.ndarray:
    """Features of random programs, of which some have no statement."""
    rng = np.random.default_rng(0)
    return flat_features([nest(rng) for _ in range(400)])


COSTS = np.random.default_rng(1).random(400)


def weights(hidden: int = 32, slots: int = 4, seed: int = 0) -> Weights:
    rng = np.random.default_rng(seed)
    shapes = {
        "read": (hidden, len(CONTEXT)), "read_bias": (hidden,), "input": (3 * hidden, hidden),
        "input_bias": (3 * hidden,), "state": (3 * hidden, hidden), "state_bias": (hidden,),
        "scatter": (slots, hidden), "score": (slots, hidden), "bias": (1,),
    }  # fmt: skip
    return {name: rng.normal(size=shape) / np.sqrt(shape[-1]) for name, shape in shapes.items()}


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def reference(w: Weights, row: np.ndarray) -> float:
    """The score of one program in float64, loop by loop."""
    levels = row.reshape(STATEMENTS, LEVELS, len(CONTEXT)).astype(np.float64)
    score, hidden = w["bias"].item(), len(w["read"])

    def state(statements: list[int], level: int) -> np.ndarray:
        """The sum of the states of a level's loops around some statements."""
        nonlocal score
        groups: list[list[int]] = []
        for one in statements:
            if level == LEVELS or not levels[one, level, 0]:
                continue
            if levels[one, level, 1]:
                groups[-1].append(one)
            else:
                groups.append([one])
        found = np.zeros(hidden)
        for group in groups:
            s = state(group, level + 1)
            x = np.maximum(w["read"] @ levels[group[0], level] + w["read_bias"], 0)
            i = np.split(w["input"] @ x + w["input_bias"], 3)
            k = np.split(w["state"] @ s, 3)
            r, z = sigmoid(i[0] + k[0]), sigmoid(i[1] + k[1])
            h = (1 - z) * np.tanh(i[2] + r * (k[2] + w["state_bias"])) + z * s
            share = np.exp(w["scatter"] @ h - (w["scatter"] @ h).max())
            score += share @ (w["score"] @ h) / share.sum()
            found += h
        return found

    state(list(range(STATEMENTS)), 0)
    return score


def scorer(w: Weights) -> Any:
    made = compiled.make_scorer(w)
    assert made is not None
    return made


@pytest.mark.parametrize(("hidden", "slots"), [(32, 4), (20, 3)])
def test_kernels_score_as_the_reference(hidden: int, slots: int) -> None:
    trees = loop_trees(table())
    for seed in (0, 1):
        own = weights(hidden, slots, seed)
        expected = [reference(own, row) for row in table()]
        np.testing.assert_allclose(scorer(own)(trees), expected, atol=2e-5)
    # Two scorers side by side have weights of their own.
    both = [scorer(weights(hidden, slots, seed)) for seed in (0, 1)]
    assert [np.ptp(one(trees)) > 0 for one in both] == [True, True]
    assert not np.allclose(both[0](trees), both[1](trees))


def test_shares_of_large_exponents() -> None:
    own = {**weights(), "scatter": 100 * weights()["scatter"]}
    expected = np.array([reference(own, row) for row in table()[:100]])
    found = scorer(own)(loop_trees(table()[:100]))
    assert np.abs(found - expected).max() < 1e-3 * np.abs(expected).max()
    huge = {**weights(), "scatter": 1e6 * weights()["scatter"]}
    assert np.isfinite(scorer(huge)(loop_trees(table()))).all()


def test_nodes_are_the_distinct_loops() -> None:
    outer, inner = Loop(2, number=1), Loop(3, number=2)
    first = Statement((outer, inner), {"add": 1}, ())
    second = Statement((outer, inner, Loop(5, number=3)), {"add": 1}, ())
    third = Statement((outer, Loop(7, number=4)), {"add": 1}, ())
    features = flat_features([(first, second, third), (), (Statement((), {}, ()),)])
    trees = loop_trees(features)
    assert trees.starts.tolist() == [0, 7, 7, 8]
    children = [trees.child[a:b].tolist() for a, b in zip(trees.first[:-1], trees.first[1:], strict=True)]
    # The outer loop; those in it; the first body, the innermost loop, the third body; the second body.
    assert children == [[1, 2], [3, 4], [5], [], [6], [], [], []]
    extents = np.exp2(trees.contexts[:, CONTEXT.index("extent")]) - 1
    np.testing.assert_allclose(extents, [2, 3, 7, 0, 5, 0, 0, 0], atol=1e-5)
    features[0, FLAT_NAMES.index("bytes@0.0")] = np.nan
    features[0, FLAT_NAMES.index("reuse@0.1")] = np.inf
    trees = loop_trees(features)
    assert trees.contexts[0, CONTEXT.index("bytes")] == trees.contexts[1, CONTEXT.index("reuse")] == 0
    assert len(loop_trees(features[:0]).starts) == 1


def test_what_are_no_loop_trees() -> None:
    rng = np.random.default_rng(2)
    for flag in ("present", "shared"):
        refused = 0
        for _ in range(300):
            features = table()[:50].copy()
            where = (
                rng.integers(50),
                FLAT_NAMES.index(f"{flag}@{rng.integers(STATEMENTS)}.{rng.integers(LEVELS)}"),
            )
            features[where] = 1 - features[where]
            try:
                trees = loop_trees(features)
            except ValueError as error:
                assert "not loop trees" in str(error)
                refused += 1
            else:
                _sound(trees)
        assert 30 < refused < 300
    with pytest.raises(ValueError, match="flattened loop features"):
        loop_trees(table()[:, :-1])


def _sound(trees: LoopTrees) -> None:
    """Each node but roots is a child once, of a node before it in its program."""
    parent = np.repeat(np.arange(len(trees.first) - 1), np.diff(trees.first))
    program = np.searchsorted(trees.starts, np.arange(len(trees.contexts)), side="right")
    assert (np.diff(trees.child) > 0).all() and (parent < trees.child).all()
    assert (program[parent] == program[trees.child]).all()


def test_candidates_are_ranked_as_by_torch() -> None:
    """Kernels are compiled once and serve each fit."""
    configs = SPACE.sample(np.random.default_rng(0), 300)
    features = np.concatenate([flat_features([loops(one) for one in configs]), table()])
    costs = np.concatenate([[cost(one) for one in configs], COSTS])
    groups = np.repeat([0, 1], [300, 400])
    by_torch, by_kernels = TreeGRU(epochs=3), TreeGRU(epochs=3, make_scorer=compiled.make_scorer)
    rng = np.random.default_rng(3)
    misses = compiled._compiled.cache_info().misses
    for _ in range(3):
        rows = rng.permutation(len(costs))[:150]
        for model in (by_torch, by_kernels):
            model.fit(features[rows], costs[rows], groups[rows])
        assert by_kernels.is_compiled and not by_torch.is_compiled
        expected, found = by_torch.mean(features), by_kernels.mean(features)
        assert np.ptp(expected) > 0.1
        np.testing.assert_allclose(found, expected, atol=1e-5 * np.abs(expected).max())
        # Those that change places differ by less than that.
        np.testing.assert_allclose(
            expected[np.argsort(found)], np.sort(expected), atol=2e-5 * np.ptp(expected)
        )
    assert compiled._compiled.cache_info().misses <= misses + 1
    # One candidate is scored as among others, what is not finite as zeros, and more than go at a time.
    np.testing.assert_allclose(by_kernels.mean(features[5:6]), found[5:6], rtol=1e-5, atol=1e-6)
    many = np.tile(features, (3, 1))
    many[7, 30:300] = np.nan
    np.testing.assert_allclose(by_kernels.mean(many), by_torch.mean(many), atol=1e-5 * np.abs(expected).max())
    # Where there is nothing to learn, there is nothing to score.
    by_kernels.fit(features[:5], np.ones(5))
    assert not by_kernels.mean(features[:3]).any()


def test_without_a_compiler_torch_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(target: Any) -> bytes:
        raise BuildError("no C++ compiler was found")

    monkeypatch.setattr("hbtvm.compiler.building.cpu.linker", none)
    compiled._compiled.cache_clear()
    try:
        assert compiled.make_scorer(weights(8, 2)) is None
        model, alone = (
            TreeGRU(epochs=2, hidden=8, make_scorer=compiled.make_scorer),
            TreeGRU(epochs=2, hidden=8),
        )
        for one in (model, alone):
            one.fit(table()[:60], COSTS[:60])
        assert not model.is_compiled
        np.testing.assert_array_equal(model.mean(table()), alone.mean(table()))
    finally:
        compiled._compiled.cache_clear()


@pytest.mark.parametrize("acquisition", ["mean", "ei"])
def test_what_scores_is_handed_down(acquisition: str) -> None:
    """To all models of a run: those of a bootstrap, and those of the log's records."""
    made: list[Weights] = []

    def make_scorer(own: Weights) -> Any:
        made.append(own)
        return lambda trees: np.arange(len(trees.starts) - 1)

    features = flat_features([loops(one) for one in SPACE.sample(np.random.default_rng(0), 40)])
    costs = COSTS[:40]
    model = maker("tree_gru", acquisition, make_scorer=make_scorer)([])
    model.fit(features, costs)
    assert len(made) == (1 if acquisition == "mean" else 5)
    assert {name: one.shape for name, one in made[0].items()} == {
        name: one.shape for name, one in weights().items()
    }
    (source,) = sources("tree_gru", FeatureSpace.of(features, (features.shape[1],)), 40, make_scorer)
    source.fit(features, costs)
    learner = Learner([task()], Choices(cost_model="tree_gru", acquisition=acquisition), None, make_scorer)
    configs = SPACE.sample(np.random.default_rng(0), 40)
    learner.add(0, configs, [cost(config) for config in configs])
    assert learner.fit() and not learner.failures
    assert len(made) == (3 if acquisition == "mean" else 11)
