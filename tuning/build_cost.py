"""Which tasks' candidates take so long to compile that the search should leave them.

How long a candidate compiles depends on the code that its strategy becomes, not on how fast that
code runs. A strategy whose candidates take many times as long as all others' spends a time budget that
the others would use better, and what it wins in a run of trials is seldom worth it.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

FEWEST = 3
"""Builds of a task before anything is concluded: the first includes imports and caches."""

FACTOR, SECONDS = 10.0, 5.0
"""A task is left if its cheapest build takes this many times the others' median, and this many seconds."""


def out_of_proportion(builds: Sequence[Sequence[float]]) -> list[int]:
    """Tasks whose builds are far more expensive than those of the others.

    Parameters
    ----------
    builds
        For each task of a run: processor seconds of its builds so far; infinite where one was stopped for
        taking too long.

    Returns
    -------
    Indices of tasks with at least `FEWEST` builds, none of which was cheaper than `FACTOR` times
    the median of the other tasks' builds, nor than `SECONDS`. A task that there is nothing to compare
    with is never among them.
    """
    found = []
    for index, own in enumerate(builds):
        others = [seconds for place, some in enumerate(builds) if place != index for seconds in some]
        if len(own) < FEWEST or len(others) < FEWEST:
            continue
        if min(own) >= max(SECONDS, FACTOR * statistics.median(others)):
            found.append(index)
    return found
