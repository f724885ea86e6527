"""Timing one candidate again and again until its time is certain enough."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable

from hbtvm.tuning.measuring.messages import Timing
from hbtvm.tuning.measuring.program import Runnable

_MOST_RUNS = 10**8
_CLEARLY = 1.25


def repeat(
    runnable: Runnable, timing: Timing, clock: Callable[[], float] = time.perf_counter
) -> tuple[float, ...]:
    """Time a candidate until its time is certain enough, giving up early on one that has lost.

    The first run warms caches up and is not reported, unless it alone took longer than
    three times the cutoff.

    Raises
    ------
    ValueError
        If the program reports a time that is not a positive number.
    """
    start = clock()
    total = _run(runnable, 1)
    if total > 3 * timing.cutoff:
        return (total,)
    number, total = 1, _run(runnable, 1)
    while total < timing.min_repeat and number < _MOST_RUNS:
        # A tenth more than needed, but never a leap that trusts one short reading.
        growth = 1.1 * timing.min_repeat / total if total > 0 else math.inf
        number = min(math.ceil(number * min(growth, 100)), _MOST_RUNS)
        total = _run(runnable, number)
    times = [total / number]
    while not _enough(times, timing) and clock() - start < timing.patience:
        times.append(_run(runnable, number) / number)
    if min(times) <= 0:
        raise ValueError("running it takes no time")
    return tuple(times)


def _enough(times: list[float], timing: Timing) -> bool:
    """Whether another time would change nothing that matters."""
    if times[0] > timing.cutoff or len(times) >= timing.most:
        return True
    if len(times) > 1 and min(times) > _CLEARLY * timing.goal:
        return True
    return len(times) >= timing.repeats and uncertainty(times) <= timing.spread


def uncertainty(times: list[float]) -> float:
    """How far the median of some times may be off, relative to it: a robust standard error.

    Half of the distance between the quartiles, over the root of their number: unlike the standard
    deviation, it is not moved by a single interruption, of which the median takes no notice either.
    """
    if len(times) < 2:
        return math.inf
    low, median, high = statistics.quantiles(times, n=4, method="inclusive")
    return (high - low) / 2 / median / math.sqrt(len(times)) if median > 0 else math.inf


def _run(runnable: Runnable, number: int) -> float:
    total = float(runnable.run(number))
    if not (math.isfinite(total) and total >= 0):
        raise ValueError(f"it reports {total} seconds")
    return total


def sentence(error: Exception) -> str:
    """An error as one line of at most 500 characters; its end tells most in TVM's reports."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = " / ".join(lines[-3:])
    return f"{type(error).__name__}: {text[-500:]}"
