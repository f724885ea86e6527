"""What a run comes to."""

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
    """A candidate that works.

    Attributes
    ----------
    task, config
        The candidate.
    time
        Median seconds per run.
    times
        Seconds per run of each repeat; for finalists, of the final's rounds.
    final
        Whether the times are of a final, and not of the search.
    """

    task: Task
    config: Config
    time: float
    times: tuple[float, ...]
    final: bool = False


@dataclass(frozen=True)
class GroupResult:
    """What was found for one group.

    Attributes
    ----------
    best
        The winner by the rule of `hbtvm.logs.ranking`; None if every candidate failed.
    runners_up
        The next best by the same rule.
    trials
        Candidates tried for this group, those found in the log included.
    failures
        Number of those that failed, by kind (`hbtvm.tuning.measuring.messages.FAILURES`).
    example
        One failure's message for each kind.
    reading
        Seconds of the fastest reading of the search, which is what a run shows meanwhile; None without one.
    """

    best: Entry | None
    runners_up: tuple[Entry, ...]
    trials: int
    failures: Mapping[str, int]
    example: Mapping[str, str]
    reading: float | None = None


@dataclass
class WallClock:
    """Where a run's time went, in seconds.

    Attributes
    ----------
    planning, training, building, measuring
        Choosing candidates, fitting cost models, and what they say.
    total
        All of the run; what the others leave is start-up, logging and the like.
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
    """What a run comes to.

    Attributes
    ----------
    groups
        By group, in the order of the tasks.
    history
        Every record made in this run, in order.
    trials
        Candidates tried, those found in the log included.
    resumed
        How many of them were found in the log.
    failures
        Failed trials of this run by kind.
    seconds
        Where the time went.
    stopped
        Why the search ended: ``"trials"``, ``"time"``, ``"exhausted"`` (nothing new to
        try), ``"interrupted"``, ``"log"`` (it cannot be written) or ``"devices"`` (none is left to
        measure on; the warnings say more).
    log_error
        What was wrong with the log.
    warnings
        What went wrong without stopping the run, e.g. a failing cost model.
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
