"""Find tasks whose candidates compile too slowly to be worth a share of the time budget.

Compile time depends on the strategy's code, not on how fast the code runs.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

FEWEST = 3  # fewest builds of a task to judge: the first includes imports and cold caches

FACTOR, SECONDS = 10.0, 5.0
"""A task is dropped if its cheapest build takes this many times the others' median, and this many seconds."""


def out_of_proportion(builds: Sequence[Sequence[float]]) -> list[int]:
    """Return the indices of tasks whose builds are far more expensive than the others'.

    `builds`: processor seconds of each task's builds; infinite for builds that timed out. Tasks with fewer
        than `FEWEST` builds, or with fewer builds to compare with, are not judged.
    """
    expensive = []
    for index, builds_here in enumerate(builds):
        others = [seconds for place, some in enumerate(builds) if place != index for seconds in some]
        if len(builds_here) < FEWEST or len(others) < FEWEST:
            continue
        if min(builds_here) >= max(SECONDS, FACTOR * statistics.median(others)):
            expensive.append(index)
    return expensive
