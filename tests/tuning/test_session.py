"""The tuning loop on synthetic programs, whose best configuration is known."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hbtvm.cost_model.base import CostModel
from hbtvm.logs.record import Record
from hbtvm.logs.store import Log, LogError
from hbtvm.schedules.space import Config, Knob, Space
from hbtvm.tuning.choices import Choices
from hbtvm.tuning.final import FinalOptions
from hbtvm.tuning.progress import Trial
from tests.fake_tuning import (
    BEST,
    SPACE,
    START,
    InProcess,
    configs,
    optimum,
    run,
    task,
    trials_to,
    winner,
)

WORST: Config = {"a": 1, "b": 512, "c": 1, "unroll": False}


def test_finds_the_optimum_and_says_how_the_time_went() -> None:
    runner = InProcess()
    result = run(trials=100, machine=runner)
    _, config, seconds = winner(result)
    assert seconds == pytest.approx(optimum())
    assert config == BEST
    assert (result.stopped, result.trials, result.resumed, result.interrupted) == ("trials", 100, 0, False)
    assert runner.closed
    assert not result.warnings
    tried = [SPACE.encode(config) for config in configs(result)]
    assert len(set(tried)) == len(tried) == 100
    assert tried[0] == SPACE.encode(START)
    clock = result.seconds
    assert min(clock.planning, clock.training, clock.building, clock.measuring) > 0
    assert clock.planning + clock.training + clock.building + clock.measuring <= clock.total


def test_annealing_needs_fewer_trials_than_random_search() -> None:
    goal = 1.2 * optimum()
    needed = {
        kind: [
            trials_to(run(trials=150, choices=Choices(kind), seed=seed).history, goal) for seed in range(3)
        ]
        for kind in ("annealing", "random")
    }
    assert np.median(needed["annealing"]) * 1.5 < np.median(needed["random"])


def test_same_seed_tries_the_same_candidates() -> None:
    one, two, other = (run(trials=50, seed=seed) for seed in (1, 1, 2))
    assert configs(one) == configs(two) != configs(other)


def test_carries_on_with_the_same_log(tmp_path: Path) -> None:
    log = Log(tmp_path / "log.jsonl")
    first = run(trials=30, log=log)
    runner = InProcess()
    second = run(trials=50, log=log, machine=runner)
    assert (second.resumed, second.trials) == (30, 50)
    assert len(configs(second)) == 20
    both = configs(first) + configs(second)
    assert len({SPACE.encode(config) for config in both}) == 50
    assert winner(second)[2] <= winner(first)[2]
    third = run(trials=50, log=log)
    assert configs(third) == []
    assert winner(third)[2] == winner(second)[2]


def test_every_result_is_in_the_log_when_it_is_told(tmp_path: Path) -> None:
    log = Log(tmp_path / "log.jsonl")
    events: list[Trial] = []

    def progress(event: Trial) -> None:
        events.append(event)
        assert len(log.read().records) == len(events)

    result = run(trials=20, log=log, progress=progress, time_budget=100.0)
    search = [event for event in events if not event.final]
    assert [event.trial for event in search] == list(range(1, 21))
    assert {event.total for event in events} == {20}
    assert events[-1].best["1000 rows"] == winner(result)[2]
    assert 0 < (events[-1].remaining or 0) < 100
    assert [record.to_line() for record in log.read().records] == [r.to_line() for r in result.history]


def test_bad_strategy_starves_and_a_close_one_does_not() -> None:
    tasks = [task("slow", scale=5e-3), task("fast"), task("close", scale=1.1e-3)]
    result = run(*tasks, trials=120)
    count = {t.strategy: sum(r.strategy == t.strategy and not r.extra for r in result.history) for t in tasks}
    assert winner(result)[0] == "fast"
    assert count["slow"] <= 10
    assert count["close"] >= 20
    assert count["fast"] >= 60


def test_groups_share_the_budget() -> None:
    tasks = [task(group=f"{rows} rows", rows=rows) for rows in (1, 1000)]
    result = run(*tasks, trials=80)
    assert list(result.groups) == ["1 rows", "1000 rows"]
    assert all(30 <= group.trials <= 50 for group in result.groups.values())


@pytest.mark.parametrize(
    ("payload", "kind"),
    [
        ({"build": "raise"}, "build"),
        ({"run": "raise"}, "measure"),
        ({"wrong": True}, "wrong_result"),
        ({"time": math.nan}, "measure"),
    ],
)
def test_failures_are_never_best(payload: dict[str, Any], kind: str) -> None:
    result = run(task(**payload), trials=20)
    group = result.groups["1000 rows"]
    assert group.best is None
    assert group.failures == result.failures == {kind: 20}
    assert group.example[kind]


def test_fast_but_wrong_candidate_loses() -> None:
    result = run(task(wrong=START, only=START), trials=30)
    assert result.failures == {"wrong_result": 1}
    assert winner(result)[1] != START


def test_slow_candidates_are_read_once() -> None:
    space = Space((Knob("a", (64, 1)), Knob("b", (4, 512)), Knob("unroll", (True,))))
    result = run(task(space=space, time=None), trials=4, batch=1, seed=3)
    times = {(record.config["a"], record.config["b"]): len(record.times) for record in result.history}
    assert times[64, 4] >= 3
    assert times[1, 512] == 1


def test_equal_binaries_are_measured_once() -> None:
    space = Space((Knob("a", (64,)), Knob("b", (1, 2, 4, 8))))
    runner = InProcess()
    result = run(task(space=space, same=True), trials=4, machine=runner, final=FinalOptions(1))
    assert len(configs(result)) == 4
    assert len(runner.measured) == 1
    assert len({record.times for record in result.history}) == 1


def test_stops_when_the_space_is_exhausted() -> None:
    result = run(task(space=Space((Knob("a", (32, 64)), Knob("b", (2, 4))))), trials=100)
    assert (result.stopped, result.trials) == ("exhausted", 4)


def test_interrupt_gives_the_best_so_far(tmp_path: Path) -> None:
    log = Log(tmp_path / "log.jsonl")

    def progress(event: Trial) -> None:
        if event.trial == 15:
            raise KeyboardInterrupt

    runner = InProcess()
    runner_close, closed = runner.close, []
    runner.close = lambda: closed.append(1)  # type: ignore[method-assign]  # a batch may be left over
    result = run(log=log, progress=progress, machine=runner)
    assert result.interrupted
    assert len(log.read().records) == len(result.history) == 15
    assert winner(result)[2] == min(record.cost for record in result.history)
    assert closed
    del runner_close


def test_log_that_fails_stops_the_run(tmp_path: Path) -> None:
    class Full(Log):
        def append(self, record: Record) -> None:
            if len(self.read().records) == 12:
                raise LogError("no space left on device")
            super().append(record)

    runner = InProcess()
    runner.close = lambda: None  # type: ignore[method-assign]
    result = run(log=Full(tmp_path / "log.jsonl"), machine=runner)
    assert result.stopped == "log"
    assert "no space" in str(result.log_error)
    assert winner(result)[2] < math.inf


def test_failing_cost_model_does_not_stop_the_run() -> None:
    class Broken(CostModel):
        def fit(self, *args: Any, **more: Any) -> None:
            raise RuntimeError("no trees today")

        def predict(self, features: Any) -> Any:
            raise RuntimeError("no trees today")

    result = run(make_model=Broken)
    assert result.trials == 60
    assert len(result.warnings) == 1
    assert "no trees today" in result.warnings[0]


@pytest.mark.parametrize(
    ("tasks", "words"),
    [
        ([task(space=Space(()))], "no knobs"),
        ([task("x"), task("x")], "of another"),
    ],
)
def test_tasks_that_cannot_be_tuned_are_refused(tasks: list[Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        run(*tasks)
