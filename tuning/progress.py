"""Progress events of a run, for the caller to display."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from hbtvm.schedules.space import Config


@dataclass(frozen=True)
class Trial:
    """One candidate has just been tried."""

    # `task`, `group`, `strategy`: the candidate's task
    task: str
    group: str
    strategy: str
    config: Config
    time: float | None  # seconds per run; None for a failure
    failure: str | None  # kind of failure (`hbtvm.tuning.measuring.messages.FAILURES`), or None
    # `trial`, `total`: trials done so far, those in the log included, and in all
    trial: int
    total: int
    best: Mapping[str, float]  # seconds of the best candidate of each group that has one
    failures: Mapping[str, int]  # number of failed trials of this run by kind
    elapsed: float  # seconds since the run began
    remaining: float | None  # seconds until the time budget ends; None without one
    final: bool = False  # whether a final measured it, which is not a trial
    busy: str = ""  # a sentence if the machine has other load; else empty


Progress = Callable[[Trial], None]  # called after each trial, between measurements; must be quick
