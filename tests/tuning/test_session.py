"""The tuning loop on synthetic programs, whose best configuration is known."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import psutil
import pytest

from hbtvm.cost_model.base import CostModel
from hbtvm.cost_model.gaussian_process import GaussianProcess
from hbtvm.logs.query import best
from hbtvm.logs.record import Record
from hbtvm.logs.store import Log, LogError
from hbtvm.schedules.space import Config, Knob, Space
from hbtvm.tuning.build_cost import out_of_proportion
from hbtvm.tuning.choices import Choices
from hbtvm.tuning.final import FinalOptions
from hbtvm.tuning.learning.transfer import nearest
from hbtvm.tuning.measuring.machine import BuiltLibrary
from hbtvm.tuning.measuring.messages import Candidate, Failure
from hbtvm.tuning.measuring.noise import NoiseOptions
from hbtvm.tuning.progress import Trial
from hbtvm.tuning.result import Result
from hbtvm.tuning.session import Options, tune
from tests.fake_tuning import BEST, SPACE, START, TARGET, InProcess, loops, optimum, task, trials_to

WORST: Config = {"a": 1, "b": 512, "c": 1, "unroll": False}


def run(*tasks: Any, trials: int = 60, machine: InProcess | None = None, **more: Any) -> Result:
    more.setdefault("experience", [])
    return tune(tasks or [task()], trials=trials, machine=machine or InProcess(), **more)


def winner(result: Result, group: str = "1000 rows") -> tuple[str, Config, float]:
    best = result.groups[group].best
    assert best is not None
    return best.task.strategy, best.config, best.time


def configs(result: Result) -> list[Config]:
    return [dict(record.config) for record in result.history if not record.extra]


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
    result = run(
        task(space=space, same=True), trials=4, machine=runner, options=Options(final=FinalOptions(1))
    )
    assert len(configs(result)) == 4
    assert len(runner.measured) == 1
    assert len({record.times for record in result.history}) == 1


def test_stops_when_the_space_is_exhausted() -> None:
    result = run(task(space=Space((Knob("a", (32, 64)), Knob("b", (2, 4))))), trials=100)
    assert (result.stopped, result.trials) == ("exhausted", 4)


def test_final_unmasks_a_lucky_reading() -> None:
    lucky: list[int] = []

    def noise(n: int) -> float:
        return 0.8 if n == 2 else 1.0  # the second measurement looks better than it is

    space = Space((Knob("a", (64, 32)), Knob("b", (4,)), Knob("unroll", (True,))))
    for seed in range(4):
        result = run(task(space=space), trials=2, machine=InProcess(noise=noise), seed=seed)
        assert winner(result)[1] == {"a": 64, "b": 4, "unroll": True}
        assert len(result.groups["1000 rows"].runners_up) == 1
        lucky.append(int(result.history[1].config["a"]))
    assert 32 in lucky


def test_candidate_that_fails_in_the_final_is_out() -> None:
    seen: list[Config] = []

    def before(candidate: Candidate) -> None:
        seen.append(candidate.config)
        if len(seen) > 40 and candidate.config == favourite:
            candidate.payload["wrong"] = favourite

    favourite = winner(run(trials=40))[1]
    result = run(trials=40, machine=InProcess(before))
    assert winner(result)[1] != favourite


def finals(result: Result) -> list[Record]:
    return [record for record in result.history if record.extra.get("final")]


def test_a_final_is_recorded_and_read_back(tmp_path: Path) -> None:
    log = Log(tmp_path / "log.jsonl")

    def noise(n: int) -> float:
        return 1.0 + 0.5 * ((n * 7) % 5) / 5  # readings are up to half as much again

    result = run(trials=40, log=log, machine=InProcess(noise=noise))
    held = finals(result)
    assert len(held) in (2, 3) and len({record.extra["final"]["id"] for record in held}) == 1
    assert [len(record.times) for record in held] == [FinalOptions.rounds] * len(held)
    readings = {SPACE.encode(dict(r.config)): r.cost for r in result.history if "final" not in r.extra}
    for record in held:
        assert record.extra["final"]["reading"] == readings[SPACE.encode(dict(record.config))]
    known = log.read().records
    said = best(known)
    assert said is not None and said.extra
    assert winner(result) == (said.strategy, said.config, said.cost)
    group = result.groups["1000 rows"]
    assert group.best is not None and group.best.final
    assert group.reading == min(readings.values())
    again = run(trials=40, log=log)
    assert finals(again) and configs(again) == []
    said = best(log.read().records)
    assert said is not None and winner(again) == (said.strategy, said.config, said.cost)


def test_a_final_is_held_where_one_candidate_is_far_ahead() -> None:
    space = Space((Knob("a", (64, 1)), Knob("b", (4,)), Knob("unroll", (True,))))
    result = run(task(space=space), trials=2)
    assert sorted(record.config["a"] for record in finals(result)) == [1, 64]
    alone = run(task(space=Space((Knob("a", (64,)), Knob("b", (4,))))), trials=2)
    assert [record.cost for record in finals(alone)] == [winner(alone)[2]]


@pytest.mark.parametrize("ended", ["stopped", "late"])
def test_rounds_of_a_final_that_does_not_end_are_recorded(ended: str, tmp_path: Path) -> None:
    """Ctrl-C, or the end of the time, in the third round: two rounds of all finalists count."""
    log = Log(tmp_path / "log.jsonl")
    turns: list[Config] = []
    clock = [0.0]

    def before(candidate: Candidate) -> None:
        if len(runner.measured) >= 40:
            turns.append(candidate.config)
            if len(turns) == 2 * len({str(turn) for turn in turns}) + 2:
                if ended == "stopped":
                    raise KeyboardInterrupt
                clock[0] = 1e9

    runner = InProcess(before)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hbtvm.tuning.final.time.monotonic", lambda: clock[0])
        quiet = Options(noise=NoiseOptions(every=0))  # no measurements of a reference in between
        result = run(trials=40, log=log, machine=runner, time_budget=1e6, options=quiet)
    assert result.interrupted == (ended == "stopped")
    held = finals(result)
    assert len(held) >= 2 and {len(record.times) for record in held} == {2}
    assert [r.to_line() for r in log.read().records] == [r.to_line() for r in result.history]
    said = best(log.read().records)
    assert said is not None and winner(result) == (said.strategy, said.config, said.cost)


def test_the_winner_of_an_earlier_final_takes_part_in_the_next(tmp_path: Path) -> None:
    log = Log(tmp_path / "log.jsonl")
    first = run(trials=20, log=log)
    # From now on all single readings look much faster than the final's times.
    second = run(trials=40, log=log, machine=InProcess(noise=lambda n: 0.1 if n <= 20 else 1.0))
    assert winner(first)[1] in [record.config for record in finals(second)]
    said = best(log.read().records)
    assert said is not None and winner(second) == (said.strategy, said.config, said.cost)
    assert said.cost == min(record.cost for record in finals(second))


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


def test_time_budget_ends_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that only measurements move: the search leaves time to the final, and that ends in time."""
    now = [100.0]
    clock = SimpleNamespace(monotonic=lambda: now[0])
    for module in ("trials", "final", "result"):
        monkeypatch.setattr(f"hbtvm.tuning.{module}.time", clock)

    def before(candidate: Candidate) -> None:
        now[0] += 0.02

    result = run(trials=10**6, time_budget=1.0, machine=InProcess(before))
    assert result.stopped == "time"
    assert 30 < result.trials <= 45  # of 50 measurements, the final's aside
    assert 0.95 <= now[0] - 100 <= 1.02 + 1e-9
    assert result.seconds.total == pytest.approx(now[0] - 100)
    assert 2 <= len(finals(result)) <= 3
    assert result.groups["1000 rows"].best is not None


def test_failing_cost_model_does_not_stop_the_run() -> None:
    class Broken(CostModel):
        def fit(self, *args: Any, **more: Any) -> None:
            raise RuntimeError("no trees today")

        def predict(self, features: Any) -> Any:
            raise RuntimeError("no trees today")

    result = run(options=Options(make_model=Broken))
    assert result.trials == 60
    assert len(result.warnings) == 1
    assert "no trees today" in result.warnings[0]


def test_likes_of_other_workloads_come_first_and_help(tmp_path: Path) -> None:
    log = Log(tmp_path / "log.jsonl")
    before = run(task(rows=500), trials=80, log=log)

    def describe(record: Record) -> tuple[Any, Space] | None:
        return (loops, SPACE) if record.workload["rows"] == 500 else None

    result = run(task(rows=1000), trials=20, log=log, describe=describe)
    assert configs(result)[0] == winner(before)[1]
    assert START in configs(result)[:2]
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
    assert configs(result)[0] == min(known[500], key=lambda record: record.cost).config
    few = run(task(rows=1000), trials=8, experience=known[250][:3], describe=describe)
    assert asked == [500]
    assert configs(few)[0] == min(known[250][:3], key=lambda record: record.cost).config


@pytest.mark.parametrize("misleading", [False, True])
def test_a_log_is_tried_before_it_is_trusted(misleading: bool) -> None:
    """A log whose times are turned round costs the trials that show it, and no more."""
    known = sorted(run(task(rows=500), trials=80).history, key=lambda record: record.cost)
    costs = [record.cost for record in known]
    if misleading:
        known = [replace(one, times=(cost,)) for one, cost in zip(known, reversed(costs), strict=True)]

    def describe(record: Record) -> tuple[Any, Space] | None:
        return loops, SPACE

    def reached(seed: int, **more: Any) -> float:
        times = [r.cost for r in run(task(rows=1000), trials=40, seed=seed, **more).history if not r.extra]
        return float(np.minimum.accumulate(times)[:24].mean())

    taught = np.mean([reached(seed, experience=known, describe=describe) for seed in range(8)])
    alone = np.mean([reached(seed) for seed in range(8)])
    assert taught < (1.3 if misleading else 0.8) * alone, taught / alone
    first = run(task(rows=1000), trials=4, experience=known, describe=describe)
    assert len(configs(first)) == 4  # guesses and draws at random, planned as one batch


def test_experience_that_makes_no_sense_is_survived() -> None:
    def describe(record: Record) -> tuple[Any, Space] | None:
        raise KeyError("trees")

    strange = Record(
        workload={"rows": "many"}, strategy="fast", target={"kind": "llvm"}, config={"z": 1}, times=(1e-9,)
    )
    result = run(experience=[strange], describe=describe)
    assert result.trials == 60
    assert winner(result)[2] < 1


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


SCRIPT = """
    from tests.fake_tuning import task
    from hbtvm.logs.store import Log
    from hbtvm.tuning.measuring.pool import PoolOptions
    from hbtvm.tuning.measuring.worker_process import Limits
    from hbtvm.tuning.session import Options, tune

    def progress(event):
        print(event.trial, flush=True)

    limits = Limits(build=60, measure=60)
    options = Options(pool=PoolOptions(builders=2, limits=limits))
    crash = {"a": 1, "b": 1, "c": 1, "unroll": False}
    result = tune([task(only=crash, check="segfault")], trials=TRIALS, log=Log("log.jsonl"),
                  progress=progress, options=options, experience=[])
    print(result.stopped, result.groups["1000 rows"].best.time < 1e-2, dict(result.failures), flush=True)
"""


def start(folder: Path, trials: int) -> subprocess.Popen[str]:
    (folder / "script.py").write_text(textwrap.dedent(SCRIPT).replace("TRIALS", str(trials)))
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return subprocess.Popen(
        [sys.executable, "script.py"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path},
    )


def test_with_real_processes_one_of_which_crashes(tmp_path: Path) -> None:
    output, errors = start(tmp_path, 24).communicate(timeout=250)
    assert output.splitlines()[-1] == "trials True {'crash': 1}"
    assert errors == ""
    assert len(Log(tmp_path / "log.jsonl").read().records) >= 24


def test_control_c_in_a_real_run(tmp_path: Path) -> None:
    with start(tmp_path, 10**5) as process:
        assert process.stdout is not None
        while process.stdout.readline().strip() != "20":
            pass
        children = psutil.Process(process.pid).children()
        assert len(children) == 3
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=250)
    assert output.splitlines()[-1].startswith("interrupted True")
    assert errors == ""
    assert not any(child.is_running() for child in children)


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


class Compiling(InProcess):
    """Builds of some strategies take so many processor seconds, or so they say."""

    def __init__(self, seconds: dict[str, float]) -> None:
        super().__init__()
        self._seconds = seconds

    def _build(self, candidate: Candidate) -> BuiltLibrary | Failure:
        library = super()._build(candidate)
        assert isinstance(library, BuiltLibrary)
        seconds = self._seconds[candidate.payload["called"]]
        if math.isinf(seconds):
            self.discard(library)
            return Failure("build_timeout", "it took too long")
        return replace(library, seconds=seconds)


@pytest.mark.parametrize(
    ("seconds", "left"),
    [(22.0, True), (math.inf, True), (6.0, False), (1.0, False)],
    ids=["far", "stopped", "four times", "like the others"],
)
def test_a_strategy_whose_builds_are_out_of_proportion_is_left(seconds: float, left: bool) -> None:
    tasks = [task(name, called=name, scale=1e-3) for name in ("cheap", "dear")]
    result = run(*tasks, trials=60, machine=Compiling({"cheap": 1.5, "dear": seconds}))
    tried = sum(record.strategy == "dear" and "final" not in record.extra for record in result.history)
    assert result.trials == 60
    assert (tried <= 8) == left, tried
    assert len(result.warnings) == left
    if left:
        assert "dear 1000 rows was left after" in result.warnings[0]


def test_a_group_keeps_what_it_has_no_alternative_to() -> None:
    tasks = [
        task(name, called=name, group=f"{rows} rows", rows=rows) for name, rows in (("cheap", 1), ("dear", 9))
    ]
    result = run(*tasks, trials=60, machine=Compiling({"cheap": 1.5, "dear": 22.0}))
    assert result.warnings == []
    assert result.groups["9 rows"].trials > 20


def test_builds_are_compared_with_those_of_the_other_tasks() -> None:
    assert out_of_proportion([[22.0] * 3, [0.5] * 8, [1.5] * 3]) == [0]
    assert out_of_proportion([[22.0] * 2, [0.5] * 8]) == []  # too few
    assert out_of_proportion([[22.0] * 9]) == out_of_proportion([[22.0] * 3, [0.5] * 2]) == []
    assert out_of_proportion([[22.0, 22.0, 3.0], [0.5] * 8]) == []  # one of them was cheap
    assert out_of_proportion([[4.0] * 3, [0.1] * 8]) == []  # cheap enough anyway
    assert out_of_proportion([]) == []
