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
    """A working candidate.

    Attributes
    ----------
    task, config
        The candidate.
    time
        Median seconds per run.
    times
        Seconds per run of each repeat or, for finalists, of each round.
    final
        Whether the final measured the times.
    """

    task: Task
    config: Config
    time: float
    times: tuple[float, ...]
    final: bool = False


@dataclass(frozen=True)
class GroupResult:
    """The result of one group.

    Attributes
    ----------
    best
        The winner by the rule of `hbtvm.logs.ranking`; None if every candidate failed.
    runners_up
        The next best by the same rule.
    trials
        Candidates tried, those in the log included.
    failures
        Failed candidates by kind (`hbtvm.tuning.measuring.messages.FAILURES`).
    example
        A message for each kind.
    reading
        Seconds of the search's fastest reading, which the display shows; None without a reading.
    """

    best: Entry | None
    runners_up: tuple[Entry, ...]
    trials: int
    failures: Mapping[str, int]
    example: Mapping[str, str]
    reading: float | None = None


@dataclass
class WallClock:
    """Seconds that a run spent on each activity.

    Attributes
    ----------
    planning, training
        Choosing candidates, and fitting cost models.
    total
        The whole run, start-up and logging included.
    """

    planning: float = 0.0
    training: float = 0.0
    building: float = 0.0
    measuring: float = 0.0
    total: float = 0.0

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
    """The result of a run.

    Attributes
    ----------
    groups
        By group, in the order of the tasks.
    history
        Every record of this run, in order.
    trials
        Candidates tried, those in the log included.
    resumed
        Candidates in the log.
    failures
        Failed trials of this run by kind.
    seconds
        Time by activity.
    stopped
        Why the search ended: ``"trials"``, ``"time"``, ``"exhausted"`` (no new candidates),
        ``"interrupted"``, ``"log"`` (not writable) or ``"devices"`` (none left; see the warnings).
    log_error
        The log's error.
    warnings
        Problems that did not stop the run, such as a failing cost model.
    """

    groups: Mapping[str, GroupResult]
    history: list[Record]
    trials: int
    resumed: int
    failures: Mapping[str, int]
    seconds: WallClock
    stopped: str
    log_error: LogError | None = None
    warnings: list[str] = field(default_factory=list)

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
