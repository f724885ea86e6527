"""Progress events of a run, for the caller to display."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hbtvm.schedules.space import Config


@dataclass(frozen=True)
class Trial:
    """One candidate has just been tried.

    Attributes
    ----------
    task, group, strategy
        The candidate's task.
    config
        The candidate.
    time
        Seconds per run; None for a failure.
    failure
        Kind of failure (`hbtvm.tuning.measuring.messages.FAILURES`), or None.
    trial, total
        Trials done so far, those in the log included, and in all.
    best
        Seconds of the best candidate of each group that has one.
    failures
        Number of failed trials of this run by kind.
    elapsed
        Seconds since the run began.
    remaining
        Seconds until the time budget ends; None without one.
    final
        Whether a final measured it, which is not a trial.
    busy
        A sentence if the machine has other load; else empty.
    """

    task: str
    group: str
    strategy: str
    config: Config
    time: float | None
    failure: str | None
    trial: int
    total: int
    best: Mapping[str, float]
    failures: Mapping[str, int]
    elapsed: float
    remaining: float | None
    final: bool = False
    busy: str = ""


Progress = Callable[[Trial], None]
"""Called after each trial, between measurements; must be quick."""
