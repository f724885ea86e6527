"""Every part of a search that can be chosen by name."""

from __future__ import annotations

import functools
import importlib.util
import math
from dataclasses import replace

import numpy as np
import pytest

from hbtvm.schedules.space import Config, Knob, Space
from hbtvm.tuning.choices import EXPLORERS, FEATURES, PRESETS, ChoiceError, Choices, assembled
from hbtvm.tuning.explorers.annealing import AnnealingExplorer, AnnealingOptions
from hbtvm.tuning.explorers.create import create
from hbtvm.tuning.result import Result
from hbtvm.tuning.session import tune
from hbtvm.tuning.settings import Settings
from tests.fake_programs import cost
from tests.fake_tuning import BEST, SPACE, InProcess, optimum, task, trials_to

SMALL = Space((Knob("a", (1, 2, 4)), Knob("b", (1, 2)), Knob("mode", ("x", "y"))), lambda c: c["a"] != c["b"])


def extra(name: str, module: str, *more: str) -> object:
    missing = importlib.util.find_spec(module) is None
    return pytest.param(name, *more, marks=pytest.mark.skipif(missing, reason=f"{module} is not installed"))


ALL_EXPLORERS = [*(name for name in EXPLORERS if name != "tpe"), extra("tpe", "optuna")]


def run(choices: Choices, trials: int = 60, seed: int = 0) -> Result:
    return tune([task()], Settings(trials=trials, choices=choices, experience=[], seed=seed), InProcess())


searched = functools.cache(run)


@pytest.mark.parametrize("kind", ALL_EXPLORERS)
def test_explorers_propose_each_valid_candidate_once(kind: str) -> None:
    explorer = create(Choices(kind), SMALL, np.random.default_rng(0))
    measured: dict[tuple[int, ...], float] = {}
    while batch := explorer.propose(3, measured):
        for config in batch:
            point = SMALL.encode(config)
            assert SMALL.contains(config)
            assert point not in measured
            # Failures among them must not disturb it.
            measured[point] = math.inf if len(measured) == 2 else 1.0 + len(measured)
        assert len(measured) <= 8
    assert len(measured) == 8


@pytest.mark.parametrize("kind", ALL_EXPLORERS)
def test_explorers_repeat_themselves_with_the_same_seed(kind: str) -> None:
    # A round of MetaSchedule takes half a second.
    one, two = (run(Choices(kind), trials=16 if kind == "metaschedule" else 40) for _ in range(2))
    assert [record.config for record in one.history] == [record.config for record in two.history]
    assert not one.warnings


@pytest.mark.parametrize("kind", ["genetic", extra("tpe", "optuna")])
def test_black_box_searches_beat_random_draws(kind: str) -> None:
    goal = 1.3 * optimum()
    needed = {
        name: [min(100, trials_to(searched(Choices(name), 100, seed).history, goal)) for seed in range(3)]
        for name in (kind, "random")
    }
    assert np.mean(needed[kind]) < np.mean(needed["random"])


def test_chains_find_the_best_from_a_scan_of_little_or_all() -> None:
    """Spaces of every size are walked; where the model is right, to its best."""

    def score(configs: list[Config]) -> np.ndarray:
        return np.array([-cost(config) for config in configs])

    measured: dict[tuple[int, ...], float] = {}
    for scan in (0, 256, 2**16):
        explorer = AnnealingExplorer(
            SPACE, np.random.default_rng(0), AnnealingOptions(scan=scan, epsilon=0.0)
        )
        explorer.update(score)
        assert BEST in explorer.propose(8, measured)
    measured = {SPACE.encode(BEST): optimum()}
    assert BEST not in explorer.propose(8, measured)


def test_chains_go_on_where_they_were_and_leave_where_a_model_was_wrong() -> None:
    def right(configs: list[Config]) -> np.ndarray:
        return np.array([-cost(config) for config in configs])

    def wrong(configs: list[Config]) -> np.ndarray:
        return -right(configs)

    explorer = AnnealingExplorer(SPACE, np.random.default_rng(0), AnnealingOptions(epsilon=0.0))
    measured: dict[tuple[int, ...], float] = {}
    for score, best in ((wrong, False), (right, True)):
        explorer.update(score)
        found = [config for _ in range(3) for config in explorer.propose(4, measured)]
        assert (min(map(cost, found)) < 1.3 * optimum()) == best
    # The model stays, so that chains are where they were: nothing is scanned anew.
    scanned: list[int] = []

    def counted(configs: list[Config]) -> np.ndarray:
        scanned.append(len(configs))
        return right(configs)

    explorer.update(counted)
    explorer.propose(4, measured)
    assert max(scanned) > 700
    scanned.clear()
    explorer.propose(4, measured)
    assert max(scanned, default=0) <= 256


def test_grid_search_goes_in_order() -> None:
    explorer = create(Choices("grid"), SMALL, np.random.default_rng(0))
    order = list(SMALL)
    assert explorer.propose(3, {SMALL.encode(order[1]): 1.0}) == [order[0], order[2], order[3]]


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        *((model, kind) for model in ("gaussian_process", "rank", "regression") for kind in FEATURES),
        extra("tree_gru", "torch", "relation"),
    ],
)
def test_cost_models_learn_from_every_kind_of_features(model: str, kind: str) -> None:
    def fastest(choices: Choices) -> float:
        results = [searched(choices, 48, seed) for seed in range(3)]
        assert not any(result.warnings for result in results)
        costs = [sorted(record.cost for record in r.history if not record.extra)[:12] for r in results]
        return float(np.mean(costs))

    assert fastest(Choices(cost_model=model, features=kind)) < 0.8 * fastest(Choices("random"))


def test_without_a_cost_model_draws_are_random() -> None:
    history = {
        name: [record.config for record in run(choices, 24).history]
        for name, choices in (("none", Choices(cost_model="none")), ("random", Choices("random")))
    }
    assert history["none"] == history["random"]


@pytest.mark.parametrize("model", ["rank_process", "gaussian_process", "rank"])
@pytest.mark.parametrize("acquisition", ["ucb", "ei"])
def test_acquisitions_come_near_the_optimum(acquisition: str, model: str) -> None:
    best = run(Choices(acquisition=acquisition, cost_model=model), trials=56).groups["1000 rows"].best
    assert best is not None
    assert best.time < 1.5 * optimum()


def test_a_random_share_is_drawn_at_random() -> None:
    result = run(Choices(epsilon=1.0, cost_model="rank"), trials=40)
    assert len({SPACE.encode(dict(record.config)) for record in result.history}) >= 40
    greedy = run(Choices(epsilon=0.0, diversity=1), trials=40)
    costs = [sorted(record.cost for record in r.history[8:])[10] for r in (greedy, result)]
    assert costs[0] < costs[1]


def test_whole_searches_have_names() -> None:
    assert assembled() == Choices() == PRESETS["default"]
    paper = assembled("autotvm")
    assert (paper.explorer, paper.cost_model, paper.features, paper.merit) == (
        "annealing",
        "rank",
        "relation",
        "mean",
    )
    assert assembled("process").cost_model == "gaussian_process"
    assert not assembled("metaschedule").learns
    # A part that is given takes the place of the preset's, and None leaves it.
    assert assembled("autotvm", features="knobs", epsilon=None) == replace(paper, features="knobs")
    with pytest.raises(ChoiceError, match="no preset 'magic'; expected one of default, autotvm"):
        assembled("magic")
    with pytest.raises(ChoiceError, match="no cost model 'guess'"):
        assembled("autotvm", cost_model="guess")


@pytest.mark.parametrize(
    "name", [name for name in PRESETS if name not in ("tpe", "tree_gru", "metaschedule")]
)
def test_every_preset_searches(name: str) -> None:
    result = run(PRESETS[name], trials=24)
    assert result.trials == 24 and not result.warnings


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"explorer": "psychic"}, "no explorer 'psychic'; expected one of annealing, random, grid"),
        ({"cost_model": "guess"}, "no cost model 'guess'"),
        ({"features": "smell"}, "no kind of features 'smell'"),
        ({"acquisition": "max"}, "no acquisition 'max'"),
        ({"diversity": 0}, "diversity of at least 1"),
        ({"epsilon": 1.5}, "epsilon from 0 to 1"),
    ],
)
def test_choices_that_there_are_not(wrong: dict[str, object], words: str) -> None:
    with pytest.raises(ChoiceError, match=words):
        Choices(**wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("choices", "words"),
    [
        (
            Choices("tpe"),
            r"explorer 'tpe' needs Optuna.*: pip install 'hbtvm\[optuna\]'",
        ),
        (Choices(cost_model="tree_gru"), r"cost model 'tree_gru' needs PyTorch"),
    ],
)
def test_what_is_not_installed_is_told_first(
    choices: Choices, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hbtvm.tuning.choices.find_spec", lambda name: None)
    with pytest.raises(ChoiceError, match=words):
        run(choices)
    # What a search does not use it does not need.
    Choices("random", cost_model="tree_gru").require()


def test_repair_reaches_the_space() -> None:
    rng = np.random.default_rng(0)
    wrong: Config = {"a": 2, "b": 2, "mode": "x"}
    repaired = SMALL.repair(wrong, rng)
    assert repaired is not None and SMALL.contains(repaired)
    fine: Config = {"a": 4, "b": 2, "mode": "x"}
    assert SMALL.repair(fine, rng) == fine
    assert Space(SMALL.knobs, lambda config: False).repair(wrong, rng) is None
