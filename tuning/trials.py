"""Try candidates: build a batch, measure it, record the results."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

from hbtvm.logs.ranking import final_mark
from hbtvm.logs.record import Record
from hbtvm.schedules.space import Config
from hbtvm.tuning.database import Database
from hbtvm.tuning.measuring.machine import Attempt, BuiltLibrary, Machine
from hbtvm.tuning.measuring.messages import Candidate, Failure, Measured, Timing
from hbtvm.tuning.measuring.noise import NoiseMonitor, busy
from hbtvm.tuning.progress import Progress, Trial
from hbtvm.tuning.result import WallClock
from hbtvm.tuning.state import TaskState


class Budget:
    """The limits of a run.

    `trials`: candidates to try.
    `seconds`: time for the whole run; None for no limit.
    `reserve`: seconds reserved for the final.
    """

    def __init__(self, trials: int, seconds: float | None) -> None:
        self.trials = trials
        self.reserve = 0.0
        self._start = time.monotonic()
        self._seconds = math.inf if seconds is None else seconds

    @property
    def elapsed(self) -> float:
        """Seconds since the run began."""
        return time.monotonic() - self._start

    @property
    def remaining(self) -> float | None:
        """Seconds left for the run; None without a limit."""
        return None if math.isinf(self._seconds) else max(0.0, self._seconds - self.elapsed)

    @property
    def seconds(self) -> float:
        """Time for the whole run; infinite without a limit."""
        return self._seconds

    @property
    def end(self) -> float:
        """The `time.monotonic` time at which the run must end."""
        return self._start + self._seconds

    @property
    def search_end(self) -> float:
        """The `time.monotonic` time at which the search must end."""
        return self.end - self.reserve

    @property
    def over(self) -> bool:
        """Whether the search must end."""
        return time.monotonic() >= self.search_end


class Recorder:
    """Adds results to the database and the tasks' states, and reports progress.

    `states`: the run's tasks.
    `budget`: for progress reports.
    `database`: receives every record.
    `progress`, `stamp`: as in `hbtvm.tuning.settings.Settings`.
    `failures`: failed trials of this run by kind.
    `noise`: notices other load on the machine.
    """

    def __init__(
        self,
        states: Sequence[TaskState],
        budget: Budget,
        database: Database,
        progress: Progress | None,
        stamp: Mapping[str, str],
        noise: NoiseMonitor,
    ) -> None:
        self.noise = noise
        self.failures: Counter[str] = Counter()
        self._states = states
        self._budget = budget
        self._database = database
        self._progress = progress
        stamp = dict(stamp)
        self._origin = {"model": stamp.pop("model")} if "model" in stamp else {}
        self._stamp: dict[str, Any] = dict(stamp)
        self._finals: dict[str, float] = {}

    @property
    def trials(self) -> int:
        """Candidates tried, those in the log included."""
        return sum(len(state.measured) for state in self._states)

    @property
    def best(self) -> dict[str, float]:
        """Seconds of the fastest candidate of each group that has one; after its final, of its finalists."""
        bests: dict[str, float] = {}
        for state in self._states:
            if math.isfinite(state.best):
                bests[state.task.group] = min(state.best, bests.get(state.task.group, math.inf))
        return bests | self._finals

    def add(
        self,
        state: TaskState,
        config: Config,
        *,
        final: str | None = None,
        marks: Mapping[str, Any] | None = None,
        **outcome: Any,
    ) -> Record:
        """Record a candidate's result, and report progress.

        `final`: the final's id for a finalist's measurement, which is not a trial.
        `marks`: extra fields of the record (see `hbtvm.tuning.measuring.noise.NoiseMonitor.note`).
        `outcome`: the result, as fields of `hbtvm.logs.record.Record`.
        Raises `LogError` if the log cannot be written; the run keeps the result.
        """
        task = state.task
        extra = {**self._origin, **(marks or {})}
        if final is not None:
            extra |= final_mark(final, state.readings.get(task.space.encode(config)))
        record = Record(
            workload=task.workload,
            strategy=task.strategy,
            target=task.target,
            config=config,
            extra=extra,
            **self._stamp,
            **outcome,
        )
        state.note(record)
        kind = record.error["kind"] if record.error else None
        if kind is not None and final is None:
            self.failures[kind] += 1
        if final is not None and kind is None:
            self._finals[task.group] = min(record.cost, self._finals.get(task.group, math.inf))
        self._database.add(record)
        if self._progress is not None:
            self._progress(
                Trial(
                    task=task.name,
                    group=task.group,
                    strategy=task.strategy,
                    config=config,
                    time=record.cost if record.times else None,
                    failure=kind,
                    trial=self.trials,
                    total=self._budget.trials,
                    best=self.best,
                    failures=dict(self.failures),
                    elapsed=self._budget.elapsed,
                    remaining=self._budget.remaining,
                    final=final is not None,
                    busy=busy(marks or {}),
                )
            )
        return record


def candidate(state: TaskState, config: Config) -> Candidate:
    """Return a task's configuration as a message to workers."""
    return Candidate(state.task.program, state.task.payload, config)


def try_batch(
    machine: Machine,
    chosen: Sequence[tuple[TaskState, Config]],
    recorder: Recorder,
    budget: Budget,
    clock: WallClock,
    timing: Timing,
    slow: float,
    meanwhile: Callable[[], None] = lambda: None,
) -> list[tuple[TaskState, Record]]:
    """Build a batch in parallel, then measure it, and return a record for each candidate tried.

    Candidates that the time budget has no room for are not tried. `meanwhile` runs in a thread while workers
    build, and ends before anything is measured.
    """
    with ThreadPoolExecutor(1) as executor:
        training = executor.submit(meanwhile)
        with clock.spend("building"):
            start = time.monotonic()
            built = machine.build([candidate(state, config) for state, config in chosen], budget.search_end)
            each = (time.monotonic() - start) / len(chosen)
        with clock.spend("training"):
            training.result()
    for (state, _), library in zip(chosen, built, strict=True):
        if isinstance(library, BuiltLibrary):
            state.builds.append(library.seconds)
        elif library is not None and library.kind == "build_timeout":
            state.builds.append(math.inf)
    done: list[tuple[TaskState, Record]] = []
    owners: dict[Attempt, tuple[TaskState, Config, float]] = {}

    def jobs() -> Iterator[Attempt]:
        """Yield candidates to measure; record those that need no measurement."""
        for (state, config), library in zip(chosen, built, strict=True):
            if library is None:
                continue
            if isinstance(library, Failure):
                done.append((state, recorder.add(state, config, error=library.error, build_seconds=each)))
                continue
            twin = _twin(state, config, library)
            if twin is not None:
                outcome: dict[str, Any] = {"times": twin.times, "error": twin.error, "build_seconds": each}
                done.append((state, recorder.add(state, config, **outcome)))
            if twin is not None or budget.over:
                machine.discard(library)
                continue
            best = recorder.best.get(state.task.group, math.inf)
            limits = replace(timing, cutoff=slow * best, goal=best)
            attempt = Attempt(candidate(state, config), library, limits)
            owners[attempt] = state, config, time.monotonic()
            yield attempt

    with clock.spend("measuring"):
        for attempt, result in machine.measure_all(jobs()):
            state, config, begun = owners[attempt]
            outcome: dict[str, Any] = {"build_seconds": each, "measure_seconds": time.monotonic() - begun}
            if isinstance(result, Measured):
                outcome |= {"times": result.times, "marks": recorder.noise.note(result.waited)}
            else:
                outcome["error"] = result.error
            done.append((state, recorder.add(state, config, **outcome)))
            # A fleet would measure the reference on different devices.
            if machine.parallel or not recorder.noise.adopt(attempt, result, recorder.trials):
                machine.discard(attempt.library)
    return done


def _twin(state: TaskState, config: Config, library: BuiltLibrary) -> Record | None:
    """Return the record of a measured candidate that is the same program, or None."""
    if library.fingerprint is None:
        return None
    point = state.task.space.encode(config)
    return state.records.get(state.twins.setdefault(library.fingerprint, point))
