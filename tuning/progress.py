"""Progress events of a run; displaying them is left to the caller."""

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
        What it was a candidate for.
    config
        The candidate.
    time
        Its seconds per run; None if it failed.
    failure
        Kind of failure (`hbtvm.tuning.measuring.messages.FAILURES`); None if it succeeded.
    trial, total
        Trials done so far, those found in the log included, and to be done.
    best
        Seconds of the best candidate of each group that has one.
    failures
        Number of failed trials of this run by kind.
    elapsed
        Seconds since the run began.
    remaining
        Seconds until the time budget ends; None without one.
    final
        Whether this was a finalist's new measurement, which counts as no trial.
    busy
        A sentence if the machine is busy with something else; else empty.
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
"""Called after each trial, between measurements; it should be quick."""
