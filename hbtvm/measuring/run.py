"""Measure an archive's candidates in a process that may crash, and write every time at once."""

from __future__ import annotations

import os
import statistics
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from hbtvm import __version__
from hbtvm.errors import DeviceError, PackageError
from hbtvm.logs.record import utc_now
from hbtvm.measuring import archive, times
from hbtvm.measuring.archive import Candidate, Trials
from hbtvm.measuring.machine import machine_for, most_bytes
from hbtvm.measuring.order import Order
from hbtvm.measuring.program import PROGRAM
from hbtvm.measuring.times import Line, TimesFile
from hbtvm.runtime.cuda import driver
from hbtvm.runtime.cuda.health import Health
from hbtvm.tuning.final import FinalOptions
from hbtvm.tuning.measuring import messages
from hbtvm.tuning.measuring.machine import BuiltLibrary, Machine
from hbtvm.tuning.measuring.messages import Failure, Measured, Timing
from hbtvm.tuning.measuring.pool import Pool, PoolOptions
from hbtvm.tuning.measuring.scratch import Scratch
from hbtvm.tuning.measuring.worker_process import Limits

_FINAL = FinalOptions()

_SLOW = 3.0  # multiple of the group's best time above which one reading suffices
_DOUBTFUL = 3  # consecutive failures, wrong results not counted, after which the machine is checked

_READING = Timing()


@dataclass(frozen=True)
class Progress:
    """The progress of a run after a measurement.

    Attributes
    ----------
    task
        Name of the candidate's task.
    line
        The result of the measurement.
    done, total
        Candidates measured, earlier runs included, and in all.
    best
        Seconds of each group's fastest candidate.
    failed
        Failed candidates.
    elapsed
        Seconds since the run began.
    """

    task: str
    line: Line
    done: int
    total: int
    best: Mapping[str, float]
    failed: int
    elapsed: float


@dataclass(frozen=True)
class Best:
    """A group's fastest candidate, and its seconds."""

    strategy: str
    config: Mapping[str, int | str | bool]
    seconds: float


@dataclass
class Outcome:
    """The result of a run.

    Attributes
    ----------
    best
        The fastest candidate of each group.
    done, total, failed
        As in `Progress`.
    resumed
        Candidates measured by earlier runs.
    stopped
        Why it ended: ``"all"`` (measured), ``"time"`` (spent) or ``"interrupted"``.
    device
        Name of the device.
    """

    best: dict[str, Best]
    done: int
    total: int
    failed: int
    resumed: int
    stopped: str
    device: str


def measure(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    time_budget: float | None = None,
    device: str | int | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Outcome:
    """Check and time an archive's candidates on this machine, with numpy and, for a GPU, its driver.

    `path`: an archive that ``hbtvm tune --export`` wrote.
    `out`: file of times (see `hbtvm.measuring.times`); an existing file is resumed.
    `time_budget`: seconds for the run; None for no limit.
    `device`: the GPU, such as ``"cuda:1"``; by default the first.
    `progress`: called after each candidate.
    Raises `PackageError` if the archive is missing or damaged. Raises `TargetError` if this machine can't run
    its code. Raises `InputError`, `FileError` if the file of times belongs to another archive or machine, or
    can't be written. Raises `DeviceError` if there is no such GPU, or it stops working; measured times are
    kept.
    """
    trials = archive.read(Path(path))
    target, name, index = machine_for(trials, device)
    start = time.monotonic()
    with (
        Scratch("hbtvm-measure-") as folder,
        TimesFile(Path(out), trials, target, name, __version__, utc_now()) as file,
    ):
        try:
            trials.unpack(folder)
        except PackageError as error:
            raise PackageError(f"{path} {error}.") from None
        # Rows are repeated in memory for a CPU, on the device for a GPU.
        memory = 4 * 2**30 + (0 if trials.on_gpu else 4 * most_bytes(trials, folder))
        health = Health(driver.gpu(index)).read if trials.on_gpu else dict
        limits = Limits(measure=30.0, memory=memory)
        with Pool([PROGRAM], PoolOptions(builders=0, limits=limits)) as pool:
            run = _Run(trials, file, pool, folder, index, start, time_budget, progress, health)
            stopped = run.all()
        return Outcome(
            run.winners(),
            len(run.readings),
            len(trials.candidates),
            run.failed,
            run.resumed,
            stopped,
            name,
        )


@dataclass
class _Run:
    trials: Trials
    file: TimesFile
    runner: Machine
    folder: Path
    device: int
    start: float
    budget: float | None
    progress: Callable[[Progress], None] | None
    health: Callable[[], dict[str, int]]
    readings: dict[int, float] = field(default_factory=dict)
    best: dict[str, tuple[int, float]] = field(default_factory=dict)
    failed: int = 0
    resumed: int = 0
    doubtful: list[Line] = field(default_factory=list)

    def all(self) -> str:
        """Measure the remaining candidates, hold finals, and return why it ended."""
        finals: dict[Any, list[Line]] = {}
        for line in self.file.known.lines:
            if line.final is None:
                self._note(line)
            else:
                finals.setdefault(line.final.get("id"), []).append(line)
        for lines in finals.values():
            self._win(lines)
        self.resumed = len(self.readings)
        order = Order(self.trials, self.readings)
        stopped = "all"
        try:
            while (candidate := order.next(self._fastest(), self._behind())) is not None:
                if self._spent(1 - _FINAL.share):
                    stopped = "time"
                    break
                self._read(candidate)
            self._settle()
            if len(self.readings) > self.resumed or not finals:
                self._finals()
        except KeyboardInterrupt:
            stopped = "interrupted"
        return stopped

    def winners(self) -> dict[str, Best]:
        """The fastest of each group."""
        winners = {}
        for group, (number, seconds) in self.best.items():
            candidate = self.trials.candidates[number]
            winners[group] = Best(self.trials.tasks[candidate.task].strategy, candidate.config, seconds)
        return winners

    def _spent(self, share: float = 1.0) -> bool:
        return self.budget is not None and time.monotonic() - self.start >= share * self.budget

    def _fastest(self) -> dict[str, Candidate]:
        return {group: self.trials.candidates[at] for group, (at, _) in self.best.items()}

    def _behind(self) -> set[int]:
        """Tasks whose best is far behind the group's."""
        bests: dict[int, float] = {}
        for number, seconds in self.readings.items():
            task = self.trials.candidates[number].task
            bests[task] = min(seconds, bests.get(task, float("inf")))
        groups = {group: seconds for group, (_, seconds) in self.best.items()}
        return {
            task
            for task, seconds in bests.items()
            if seconds > _SLOW * groups.get(self.trials.tasks[task].group, float("inf"))
        }

    def _read(self, candidate: Candidate) -> None:
        """Take a reading of a candidate."""
        best = self.best.get(self._group(candidate), (0, float("inf")))[1]
        start = time.monotonic()
        result = self._measured(candidate, replace(_READING, cutoff=_SLOW * best, goal=best))
        spent = time.monotonic() - start
        if isinstance(result, Measured):
            self._settle()
            health = self.health() or None
            self._keep(Line(candidate.number, utc_now(), result.times, measure_seconds=spent, health=health))
            return
        line = Line(candidate.number, utc_now(), error=result.error, measure_seconds=spent)
        if result.kind == "wrong_result":
            self._settle()
            self._keep(line)
            return
        # The machine itself may have failed; then these candidates are measured again later.
        self.doubtful.append(line)
        if len(self.doubtful) >= _DOUBTFUL:
            self._look()

    def _look(self) -> None:
        """Measure the fastest candidate again: if it works, the failures since are the candidates' own.

        Raises `DeviceError` if it fails.
        """
        for number, _ in sorted(self.best.values(), key=lambda pair: pair[1])[:1]:
            result = self._measured(self.trials.candidates[number], _READING)
            if isinstance(result, Failure):
                raise DeviceError(
                    f"this machine measures no more: {result.message}; what was measured is kept, and the "
                    "same command carries on."
                )
            self._settle()
            return
        if len(self.doubtful) >= 3 * _DOUBTFUL:
            error = self.doubtful[-1].error
            assert error is not None
            raise DeviceError(f"nothing works on this machine: {error['message']}.")

    def _settle(self) -> None:
        """Record the doubtful failures."""
        waiting, self.doubtful = self.doubtful, []
        for line in waiting:
            self._keep(line)

    def _keep(self, line: Line) -> None:
        self.file.add(line)
        if line.final is None:
            self._note(line)
        if self.progress is not None:
            self.progress(
                Progress(
                    self.trials.tasks[self.trials.candidates[line.candidate].task].name,
                    line,
                    len(self.readings),
                    len(self.trials.candidates),
                    {group: seconds for group, (_, seconds) in self.best.items()},
                    self.failed,
                    time.monotonic() - self.start,
                )
            )

    def _note(self, line: Line) -> None:
        """Add a reading."""
        seconds = statistics.median(line.times) if line.times else float("inf")
        self.failed += not line.times
        self.readings[line.candidate] = seconds
        group = self._group(self.trials.candidates[line.candidate])
        if seconds < self.best.get(group, (0, float("inf")))[1]:
            self.best[group] = line.candidate, seconds

    def _finals(self) -> None:
        """Measure each group's fastest candidates again, in turns: the fastest of many readings is biased."""
        for group in list(self.best):
            finalists = self._finalists(group)
            if len(finalists) < 2 or self._spent():
                continue
            readings: dict[int, list[float]] = {number: [] for number in finalists}
            errors: dict[int, Failure] = {}
            start = time.monotonic()
            for _ in range(_FINAL.rounds):
                for number in finalists:
                    if number in errors:
                        continue
                    once = replace(_READING, repeats=1, most=1)
                    result = self._measured(self.trials.candidates[number], once)
                    if isinstance(result, Measured):
                        readings[number] += result.times
                    else:
                        errors[number] = result
                if self._spent():
                    break
            ident, spent = uuid.uuid4().hex, (time.monotonic() - start) / len(finalists)
            lines = []
            for number in finalists:
                mark, failure = times.final(ident, self.readings[number]), errors.get(number)
                seconds = () if failure else tuple(readings[number])
                error = failure.error if failure else None
                lines.append(Line(number, utc_now(), seconds, error, spent, mark))
            self._win(lines)
            for line in lines:
                self._keep(line)

    def _win(self, lines: Sequence[Line]) -> None:
        """Add the results of a final."""
        working = {line.candidate: statistics.median(line.times) for line in lines if line.times}
        if working:
            winner = min(working, key=lambda number: working[number])
            self.best[self._group(self.trials.candidates[winner])] = winner, working[winner]

    def _finalists(self, group: str) -> list[int]:
        ranked = [
            (seconds, number)
            for number, seconds in self.readings.items()
            if self._group(self.trials.candidates[number]) == group and seconds < float("inf")
        ]
        ranked.sort()
        return [number for _, number in ranked[: _FINAL.count([seconds for seconds, _ in ranked])]]

    def _measured(self, candidate: Candidate, timing: Timing) -> Measured | Failure:
        payload = {"folder": str(self.folder), "candidate": candidate.number, "device": self.device}
        job = messages.Candidate(PROGRAM, payload, candidate.config)
        return self.runner.measure(job, BuiltLibrary("", None), timing)

    def _group(self, candidate: Candidate) -> str:
        return self.trials.tasks[candidate.task].group
