"""What a search takes from logs of other workloads, and what it learns and describes in planning."""

from __future__ import annotations

import functools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hbtvm.cost_model.models.gaussian_process import GaussianProcess
from hbtvm.logs.record import Record
from hbtvm.logs.store import Log
from hbtvm.schedules.space import Config, Space
from hbtvm.tuning.choices import Choices
from hbtvm.tuning.learning.transfer import nearest
from tests.fake_tuning import (
    SPACE,
    START,
    TARGET,
    configs,
    loops,
    run,
    task,
    winner,
)


def test_likes_of_other_workloads_follow_the_default_and_help(tmp_path: Path) -> None:
    log = Log(tmp_path / "log.jsonl")
    before = run(task(rows=500), trials=80, log=log)

    def describe(record: Record) -> tuple[Any, Space] | None:
        return (loops, SPACE) if record.workload["rows"] == 500 else None

    result = run(task(rows=1000), trials=20, log=log, describe=describe)
    assert configs(result)[:2] == [START, winner(before)[1]]
    cold = run(task(rows=1000), trials=20, log=log, describe=describe, transfer=False)
    assert cold.resumed == 20  # the very same workload's records still count
    fresh = run(task(rows=1000), trials=20, log=Log(tmp_path / "new.jsonl"), transfer=False)
    assert configs(fresh)[0] == START
    costs = [sorted(record.cost for record in r.history[:20])[10] for r in (result, fresh)]
    assert costs[0] < costs[1]


def noted(strategy: str, rows: int, kind: str = "llvm") -> Record:
    return Record(
        workload={"rows": rows, "trees": 10},
        target={**TARGET, "kind": kind},
        strategy=strategy,
        config=START,
        times=(1.0,),
    )


def test_the_global_model_learns_from_the_nearest_workloads_of_a_log() -> None:
    of = [[noted(*one)] for one in (("odd", 1000), ("fast", 8000), ("fast", 2000), ("fast", 1000, "cuda"))]
    assert nearest(of, [task(rows=1000)], 5) == [of[2], of[1], of[0]]
    assert nearest(of, [task(rows=1000), task(rows=8000)], 2) == [of[1], of[2]]


def test_a_log_of_winners_gives_guesses_but_nothing_to_learn() -> None:
    asked: list[int] = []

    def describe(record: Record) -> tuple[Any, Space] | None:
        asked.append(int(record.workload["rows"]))
        return loops, SPACE

    known = {rows: run(task(rows=rows), trials=20).history for rows in (250, 500)}
    result = run(task(rows=1000), trials=8, experience=[*known[250][:3], *known[500]], describe=describe)
    assert asked == [500]
    assert configs(result)[1] == min(known[500], key=lambda record: record.cost).config
    few = run(task(rows=1000), trials=8, experience=known[250][:3], describe=describe)
    assert asked == [500]
    assert configs(few)[1] == min(known[250][:3], key=lambda record: record.cost).config


def reached(seed: int, **more: Any) -> float:
    """How far a search comes on the way, seconds."""
    times = [r.cost for r in run(task(rows=1000), trials=24, seed=seed, **more).history if not r.extra]
    return float(np.minimum.accumulate(times)[:24].mean())


@functools.cache
def reached_alone() -> float:
    """How far searches without a log come."""
    return float(np.mean([reached(seed) for seed in range(8)]))


@functools.cache
def neighbour() -> list[Record]:
    """A search's records of a neighbouring workload, the fastest first."""
    return sorted(run(task(rows=500), trials=80).history, key=lambda record: record.cost)


@pytest.mark.parametrize("misleading", [False, True])
def test_a_log_is_tried_before_it_is_trusted(misleading: bool) -> None:
    """A log whose times are turned round costs the trials that show it, and no more."""
    known = neighbour()
    costs = [record.cost for record in known]
    if misleading:
        known = [replace(one, times=(cost,)) for one, cost in zip(known, reversed(costs), strict=True)]

    def describe(record: Record) -> tuple[Any, Space] | None:
        return loops, SPACE

    taught = np.mean([reached(seed, experience=known, describe=describe) for seed in range(8)])
    assert taught < (1.3 if misleading else 0.8) * reached_alone(), taught / reached_alone()
    first = run(task(rows=1000), trials=4, experience=known, describe=describe)
    assert len(configs(first)) == 4  # guesses and draws at random, planned as one batch


def test_experience_that_makes_no_sense_is_survived() -> None:
    def describe(record: Record) -> tuple[Any, Space] | None:
        raise KeyError("trees")

    strange = Record(
        workload={"size": "many"}, strategy="fast", target={"kind": "llvm"}, config={"z": 1}, times=(1e-9,)
    )
    result = run(experience=[strange], describe=describe)
    assert result.trials == 60
    assert winner(result)[2] < 1


def test_planning_is_cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """By what it does, not by how long that takes: fits, how much they learn from, and what is scored."""
    fitted: list[int] = []
    scored: list[int] = []
    fit, predict = GaussianProcess.fit, GaussianProcess.predict

    def count_fit(self: Any, features: Any, *args: Any, **more: Any) -> None:
        fitted.append(len(features))
        fit(self, features, *args, **more)

    def count_predict(self: Any, features: Any, *args: Any) -> Any:
        scored.append(len(features))
        return predict(self, features, *args)

    monkeypatch.setattr(GaussianProcess, "fit", count_fit)
    monkeypatch.setattr(GaussianProcess, "predict", count_predict)
    tasks = [task(group=f"{rows} rows", rows=rows) for rows in (1, 1000)]
    result = run(*tasks, trials=200)
    assert result.trials == 200
    assert 10 < len(fitted) <= 50  # one for each batch at most
    assert max(fitted) <= 200 and sum(fitted) <= 4_000
    assert 0 < sum(scored) <= 900 * 200  # for each trial some hundred candidates


def described(choices: Choices, trials: int) -> list[Config]:
    """What a search has described, in order."""
    seen: list[Config] = []

    def spy(config: Config) -> Any:
        seen.append(config)
        return loops(config)

    watched = task()
    object.__setattr__(watched, "describe", spy)
    assert run(watched, trials=trials, choices=choices).warnings == []
    return seen


def test_the_default_search_describes_no_loops() -> None:
    assert described(Choices(), 20) == []


@pytest.mark.parametrize("features", ["relation", "flat", "joint"])
def test_loops_are_described_once_and_for_few_candidates(features: str) -> None:
    seen = described(Choices(cost_model="rank", features=features), 40)
    points = [SPACE.encode(config) for config in seen]
    assert len(points) == len(set(points))
    assert 40 < len(points) <= 40 + 160 * 10  # ten batches
