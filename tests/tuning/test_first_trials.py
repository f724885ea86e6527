"""The first trials of a run: every group's default, before anything is learned, and what they decide."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from hbtvm.logs.record import Record
from hbtvm.logs.store import Log
from hbtvm.tuning.learning.learner import Learner
from hbtvm.tuning.measuring.machine import BuiltLibrary
from hbtvm.tuning.progress import Trial
from hbtvm.tuning.result import Entry
from tests.fake_tuning import START, TARGET, InProcess, configs, run, task, winner

GROUPS = [f"{rows} rows" for rows in (1, 10, 100, 1000, 10_000, 100_000)]
TASKS = [
    task(name, group=group, rows=i, scale=1e-3 * i)
    for i, group in enumerate(GROUPS, 1)
    for name in ("usual", "other")
]
ELSEWHERE = Record(
    workload={"rows": 7, "trees": 9}, target=TARGET, strategy="usual", config=START, times=(1.0,)
)


def test_defaults_are_measured_before_the_global_model_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    learn_from = Learner.learn_from

    def spy(self: Learner, *arguments: object) -> int:
        events.append("trained")
        return learn_from(self, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(Learner, "learn_from", spy)
    machine = InProcess(before=lambda candidate: events.append("measured"))
    result = run(*TASKS, trials=20, machine=machine, experience=[ELSEWHERE], describe=lambda record: None)
    assert events[: len(GROUPS) + 1] == ["measured"] * len(GROUPS) + ["trained"]
    first = result.history[: len(GROUPS)]
    assert [record.workload["rows"] for record in first] == [1, 2, 3, 4, 5, 6]
    assert all(record.strategy == "usual" and record.config == START for record in first)
    assert all(group.trials for group in result.groups.values())


def test_fewer_trials_than_groups_leave_groups_unreached() -> None:
    result = run(*TASKS, trials=2)
    assert [group.trials for group in result.groups.values()] == [1, 1, 0, 0, 0, 0]
    assert [group.rows for group in result.groups.values()] == [1, 2, 3, 4, 5, 6]


class Overheads:
    """Calls of the groups `of` take twenty times as long as their kernels."""

    def __init__(self, *of: str) -> None:
        self.of = of
        self.asked: list[list[str]] = []

    def __call__(self, fastest: Mapping[str, tuple[Entry, BuiltLibrary]]) -> dict[str, float]:
        self.asked.append(list(fastest))
        assert all(os.path.exists(library.path) for _, library in fastest.values())
        return {group: 20 * fastest[group][0].time for group in self.of}


def test_groups_of_overhead_get_one_trial() -> None:
    overheads = Overheads(*GROUPS[1:])
    result = run(*TASKS, trials=30, overheads=overheads)
    assert overheads.asked == [GROUPS]
    assert [group.trials for group in result.groups.values()] == [25, 1, 1, 1, 1, 1]
    assert list(result.overheads) == GROUPS[1:]
    assert all(call == 20 * kernel for kernel, call in result.overheads.values())
    assert result.stopped == "trials"


def test_a_run_of_overhead_stops_before_anything_is_learned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Learner, "learn_from", None)
    log = Log(tmp_path / "log.jsonl")
    for resumed in (0, len(GROUPS)):  # the same command again measures nothing more
        result = run(*TASKS, trials=30, log=log, overheads=Overheads(*GROUPS), experience=[ELSEWHERE])
        assert (result.stopped, result.trials, result.resumed) == ("overhead", len(GROUPS), resumed)
        assert len(configs(result)) == len(GROUPS) - resumed
        assert all(group.best is not None and group.best.final for group in result.groups.values())


def test_progress_ends_with_the_final_not_with_a_lucky_reading() -> None:
    events: list[Trial] = []
    machine = InProcess(noise=lambda n: 0.01 if n == 5 else 1.0)
    result = run(trials=20, machine=machine, progress=events.append)
    searched = [event for event in events if not event.final]
    assert events[-1].best == {"1000 rows": winner(result)[2]}
    assert searched[-1].best["1000 rows"] < winner(result)[2]
