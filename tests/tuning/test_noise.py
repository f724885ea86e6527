"""Noise: how often a candidate is timed, and how a busy machine is noticed and told."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hbtvm.cli.progress.live import Plain
from hbtvm.logs.store import Log
from hbtvm.schedules.space import Config
from hbtvm.tuning.measuring.machine import BuiltLibrary
from hbtvm.tuning.measuring.messages import Candidate, Failure, Measured, Timing
from hbtvm.tuning.measuring.noise import NoiseOptions
from hbtvm.tuning.measuring.repeat import repeat, uncertainty
from hbtvm.tuning.measuring.worker import scheduled
from hbtvm.tuning.progress import Trial
from hbtvm.tuning.session import tune
from hbtvm.tuning.settings import Settings
from tests.fake_tuning import InProcess, task

LONG = Timing(min_repeat=0.0)
SLOWER = "the machine is busy: 1.50 times slower than before"


class Readings:
    """Reports given times, the last one again and again; the first is the warm-up."""

    def __init__(self, times: Sequence[float]) -> None:
        self.times = [times[0], *times]
        self.read = 0

    def check(self) -> str | None:
        return None

    def run(self, number: int) -> float:
        self.read += 1
        return self.times[min(self.read, len(self.times)) - 1] * number


def test_steady_times_are_read_three_times() -> None:
    assert len(repeat(Readings([1.0, 1.001, 0.999]), LONG)) == 3


def test_times_are_read_until_they_are_certain_but_not_for_ever() -> None:
    assert len(repeat(Readings([1.0, 1.2, 0.9, 1.0, 1.0]), LONG)) in range(5, 9)
    rng = np.random.default_rng(0)
    wild = list(rng.uniform(1.0, 3.0, 100))
    assert len(repeat(Readings(wild), LONG)) == LONG.most
    clock = iter(range(0, 1000, 3))
    assert len(repeat(Readings(wild), LONG, lambda: float(next(clock)))) == 2  # patience is 5 s


def test_who_has_clearly_lost_is_read_twice_and_who_is_hopeless_once() -> None:
    timing = Timing(min_repeat=0.0, cutoff=3.0, goal=1.0)
    assert len(repeat(Readings([1.3, 1.9, 1.0]), timing)) == 2
    assert len(repeat(Readings([1.3, 1.2, 1.1, 1.3, 1.0]), timing)) > 2  # may still be the next best
    assert len(repeat(Readings([3.5]), timing)) == 1


class Launched:
    """Runs of which the first of each reading waits for its launch."""

    def __init__(self, seconds: float, launch: float) -> None:
        self.seconds, self.launch = seconds, launch

    def run(self, number: int) -> float:
        return self.launch + number * self.seconds


def test_a_launch_does_not_reject_a_fast_kernel() -> None:
    timing = Timing(min_repeat=1e-3, cutoff=12e-6, goal=4e-6)
    fast = repeat(Launched(3e-6, 45e-6), timing)
    assert len(fast) > 1 and max(fast) < 4e-6
    (slow,) = repeat(Launched(20e-6, 45e-6), timing)
    assert 20e-6 < slow < 24e-6  # a mean of several


def test_uncertainty_takes_no_notice_of_one_interruption() -> None:
    assert uncertainty([1.0]) == math.inf
    assert uncertainty([1.0, 1.0, 9.0, 1.0, 1.0, 1.0]) == 0.0
    assert uncertainty([1.0, 1.1, 0.9] * 3) > uncertainty([1.0, 1.1, 0.9] * 9) > 0


def test_the_scheduler_tells_how_long_this_process_ran_and_waited() -> None:
    ran, waited = scheduled()
    sum(range(10**6))
    later, longer = scheduled()
    assert later >= ran >= 0 and longer >= waited >= 0


class Loaded(InProcess):
    """A machine that is slow for some measurements, and says for how long candidates had to wait."""

    def __init__(self, slow: range, waited: float = 0.0) -> None:
        super().__init__(noise=lambda n: 1.5 if n in slow else 1.0)
        self._slow, self._waited = slow, waited

    def measure(self, candidate: Candidate, library: BuiltLibrary, timing: Timing) -> Measured | Failure:
        result = super().measure(candidate, library, timing)
        if isinstance(result, Measured) and len(self.measured) in self._slow:
            return Measured(result.seconds, result.times, self._waited)
        return result


def run(runner: InProcess, tmp_path: Path, **more: Any) -> tuple[Any, list[Trial]]:
    events: list[Trial] = []
    noise = NoiseOptions(every=8)
    log = Log(tmp_path / "log.jsonl")
    result = tune(
        [task()], Settings(trials=64, log=log, experience=[], progress=events.append, noise=noise), runner
    )
    return result, events


def test_a_reference_that_got_slower_is_told_and_marked(tmp_path: Path) -> None:
    result, events = run(Loaded(range(20, 40)), tmp_path)
    [warning] = result.warnings
    assert "a reference took up to 1.50 times as long as before" in warning
    marked = [record for record in Log(tmp_path / "log.jsonl").read().records if "drift" in record.extra]
    assert 8 <= len(marked) <= 24
    assert marked[0].extra["drift"] == pytest.approx(1.5)
    assert f"{len(marked)} of" in warning
    assert next(event.busy for event in events if event.busy) == SLOWER
    assert not events[0].busy and not [event for event in events if not event.final][-1].busy
    assert result.trials == 64


def test_waiting_for_a_processor_is_told_and_marked(tmp_path: Path) -> None:
    result, events = run(Loaded(range(5, 8), waited=0.4), tmp_path)
    assert "waited up to 40% of their time for a processor" in result.warnings[0]
    marked = [record.extra for record in result.history if "waited" in record.extra]
    assert marked == [{"waited": 0.4}] * 3
    assert sum(bool(event.busy) for event in events) == 3


def test_a_quiet_machine_is_not_mentioned(tmp_path: Path) -> None:
    result, events = run(Loaded(range(0), waited=0.05), tmp_path)
    assert result.warnings == []
    assert not any(event.busy for event in events)
    assert all(set(record.extra) <= {"final"} for record in result.history)


def test_a_reference_that_fails_is_let_go(tmp_path: Path) -> None:
    seen: list[Config] = []

    def before(candidate: Candidate) -> None:
        seen.append(candidate.config)
        if len(seen) > 1 and candidate.config == seen[0]:
            candidate.payload["wrong"] = seen[0]

    result, _ = run(InProcess(before), tmp_path)
    assert (result.trials, result.stopped, result.warnings) == (64, "trials", [])


def test_a_busy_machine_shows_once_in_the_plain_display(capsys: pytest.CaptureFixture[str]) -> None:
    import sys

    from tests import fake_cli

    plain = Plain("m.txt", sys.stderr)
    with plain:
        for i in range(1, 5):
            plain(fake_cli.trial(i, busy=SLOWER if i > 1 else ""))
    err = capsys.readouterr().err
    assert err.count(SLOWER) == 1
