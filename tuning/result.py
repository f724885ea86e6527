"""The result of a run."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from hbtvm.logs.record import Record
from hbtvm.logs.store import LogError
from hbtvm.schedules.space import Config
from hbtvm.tuning.task import Task


@dataclass(frozen=True)
class Entry:
    """A working candidate."""

    # `task`, `config`: the candidate
    task: Task
    config: Config
    time: float  # median seconds per run
    times: tuple[float, ...]  # seconds per run of each repeat or, for finalists, of each round
    final: bool = False  # whether the final measured the times


@dataclass(frozen=True)
class GroupResult:
    """The result of one group."""

    best: Entry | None  # the winner by the rule of `hbtvm.logs.ranking`; None if every candidate failed
    runners_up: tuple[Entry, ...]  # the next best by the same rule
    trials: int  # candidates tried, those in the log included
    failures: Mapping[str, int]  # failed candidates by kind (`hbtvm.tuning.measuring.messages.FAILURES`)
    example: Mapping[str, str]  # a message for each kind
    rows: int | None = None  # the workload's rows per call; None if it has none
    # The candidate that is used without a search; None if it was not measured, or failed
    default: Entry | None = None

    @property
    def gain(self) -> float | None:
        """The default's time in times of the best's; None unless a final measured both, in turns."""
        if self.best is None or self.default is None or not (self.best.final and self.default.final):
            return None
        return self.default.time / self.best.time


@dataclass
class WallClock:
    """Seconds that a run spent on each activity."""

    # `planning`, `training`: choosing candidates, and fitting cost models
    planning: float = 0.0
    training: float = 0.0
    building: float = 0.0
    measuring: float = 0.0
    total: float = 0.0  # the whole run, start-up and logging included

    @contextmanager
    def spend(self, what: str) -> Iterator[None]:
        """Add the time of a ``with`` block to one of the attributes."""
        start = time.monotonic()
        try:
            yield
        finally:
            setattr(self, what, getattr(self, what) + time.monotonic() - start)


@dataclass(frozen=True)
class Result:
    """The result of a run."""

    groups: Mapping[str, GroupResult]  # by group, in the order of the tasks
    history: list[Record]  # every record of this run, in order
    trials: int  # candidates tried, those in the log included
    resumed: int  # candidates in the log
    failures: Mapping[str, int]  # failed trials of this run by kind
    seconds: WallClock  # time by activity
    # Why the search ended: ``"trials"``, ``"time"``, ``"exhausted"`` (no new candidates), ``"overhead"`` (of
    # all groups, see `overheads`), ``"settled"`` (the model expects little more, see `settled`),
    # ``"interrupted"``, ``"log"`` (not writable) or ``"devices"`` (none left; see the warnings)
    stopped: str
    log_error: LogError | None = None  # the log's error
    # Problems that did not stop the run, such as a failing cost model
    warnings: list[str] = field(default_factory=list)
    # By group that the search left because of its calls' overhead: seconds of its kernel, and of a call
    overheads: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    # By group that the search left since the model expected little: the gain expected of another batch
    settled: Mapping[str, float] = field(default_factory=dict)

    @property
    def interrupted(self) -> bool:
        """Whether the user stopped it."""
        return self.stopped == "interrupted"

    def provenance(self, seed: int, started: str) -> dict[str, Any]:
        """The summary of the run that a package keeps."""
        return {
            "trials": self.trials,
            "failed": sum(self.failures.values()),
            "seconds": round(self.seconds.total, 3),
            "stopped": self.stopped,
            "seed": seed,
            "started": started,
        }
