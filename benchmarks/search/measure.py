"""Filling the cache: every candidate of a space, or a sample of a large one, measured once."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path

from benchmarks.common import locked
from benchmarks.search.spaces import Spot, task
from hbtvm.compiler.assemble import stamp
from hbtvm.logs.store import Log
from hbtvm.tuning.choices import Choices
from hbtvm.tuning.final import FinalOptions
from hbtvm.tuning.measuring.messages import Timing
from hbtvm.tuning.result import Result
from hbtvm.tuning.session import tune
from hbtvm.tuning.settings import Settings
from hbtvm.tuning.task import Task

ENOUGH = 1000
"""Candidates of each space; a smaller one is measured whole."""

CHUNK = 60.0
"""Seconds for which the machine is kept at a time."""


def log_of(folder: Path, spot: Spot) -> Log:
    """Where a space's times are kept."""
    return Log(folder / f"{spot.name}.jsonl")


def draw(tasks: Sequence[Task], log: Log, enough: int, seconds: float | None = None) -> Result:
    """Measure candidates drawn at random until there are enough in all, or time is up.

    Drawing at random learns nothing, so the sample is fair.
    """
    return tune(
        tasks,
        Settings(
            trials=enough,
            time_budget=seconds,
            log=log,
            choices=Choices("random"),
            transfer=False,
            batch=32,
            # Many short readings, of which the fastest counts (see `replay.load`): other load on the machine
            # only adds to a time.
            timing=Timing(repeats=20, min_repeat=0.0005, patience=0.3),
            slow=math.inf,
            # No final: it compares the fastest candidates, and here each counts by itself.
            final=FinalOptions(finalists=1),
            stamp=stamp(),
        ),
    )


def measure(spots: Sequence[Spot], folder: Path, *, enough: int = ENOUGH, lock: Path | None = None) -> None:
    """Measure what the logs lack; the same call goes on where an earlier one stopped.

    Parameters
    ----------
    spots
        The spaces.
    folder
        Where the logs are kept.
    enough
        Candidates for each.
    lock
        A file to lock (as ``flock`` does) for each chunk of `CHUNK` seconds, where
        others measure on the same machine.
    """
    folder.mkdir(parents=True, exist_ok=True)
    waiting = deque(spots)
    while waiting:
        spot = waiting.popleft()
        start = time.monotonic()
        with task(spot) as found, locked(lock):
            result = draw([found], log_of(folder, spot), enough, CHUNK)
        new, seconds = result.trials - result.resumed, time.monotonic() - start
        print(f"{spot.name}: {result.trials} candidates, {new} new in {seconds:.0f} s", flush=True)
        if result.interrupted:
            raise KeyboardInterrupt
        if result.log_error is not None:
            raise result.log_error
        if result.stopped == "time":
            waiting.append(spot)  # round robin, so that every space has some records early
