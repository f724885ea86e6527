"""Repeat a measurement until its median is certain enough."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable

from hbtvm.tuning.measuring.messages import Timing
from hbtvm.tuning.measuring.program import Runnable

_MOST_RUNS = 10**8
_CLEARLY = 1.25

_OVERHEAD = 1e-3
"""Seconds of a first run from which a launch's overhead, some 50 microseconds on a GPU, is negligible."""


def repeat(
    runnable: Runnable, timing: Timing, clock: Callable[[], float] = time.perf_counter
) -> tuple[float, ...]:
    """Time a candidate until its median is certain enough, or until it has clearly lost.

    The first run warms up caches. If it exceeds three times the cutoff, the candidate is rejected; one short
    run may be mostly launch overhead, so several in a row have to exceed the cutoff, too. Raises
    `ValueError` if the program reports a time that is not positive.
    """
    start = clock()
    total = _run(runnable, 1)
    if total > 3 * timing.cutoff:
        several = math.ceil(_OVERHEAD / total)
        mean = _run(runnable, several) / several if several > 1 else total
        if mean > timing.cutoff:
            return (mean,)
    number, total = 1, _run(runnable, 1)
    while total < timing.min_repeat and number < _MOST_RUNS:
        # A tenth more than needed, but at most 100-fold: short readings are imprecise.
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
    """Whether no further repeat is needed."""
    if times[0] > timing.cutoff or len(times) >= timing.most:
        return True
    if len(times) > 1 and min(times) > _CLEARLY * timing.goal:
        return True
    return len(times) >= timing.repeats and uncertainty(times) <= timing.spread


def uncertainty(times: list[float]) -> float:
    """Return the median's relative standard error: half the interquartile range over the root of the count.

    Like the median, and unlike the standard deviation, it ignores a single interruption.
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
    """Return an error's last 500 characters, where TVM states the cause, as one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = " / ".join(lines[-3:])
    return f"{type(error).__name__}: {text[-500:]}"
