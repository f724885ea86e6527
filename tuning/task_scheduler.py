"""Give the next batch to the task with the largest expected gain.

A run tunes several strategies for each group (say, a batch size), and only the fastest counts. The next
batch goes to the task that is expected to improve its group most, relative to the group's best. For a task
whose best takes ``t`` seconds after ``n`` trials, in a group whose best takes ``g``::

    reach = 0.9                  if n < one batch
            0.5 / sqrt(n / b)    after that, b being the size of a batch
    slope = relative improvement of t by a batch, mean of its last two
    gain  = 1 - t * (1 - reach - slope) / g

A task gets a first batch unless its first guess is ten times slower than the group's best; a second if it is
within twice the group's best; a fifth if within 1.33 times; more while it keeps improving. The gain of the
group's fastest task stays positive and shrinks with its trials, so groups alternate. A task without a valid
result gets no second batch, unless its group has none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

_FIRST_REACH = 0.9
_REACH = 0.5
_MOST = 0.95  # nothing becomes 20 times faster in one batch


@dataclass(frozen=True)
class Standing:
    """A task's progress."""

    group: str
    trials: int  # candidates measured, failures included
    # Seconds of the best candidate before each batch and after the last; infinite without a candidate
    trace: Sequence[float]
    exhausted: bool = False  # whether the space has no new candidate

    @property
    def best(self) -> float:
        """Seconds of the best candidate so far."""
        return self.trace[-1] if self.trace else math.inf


def gain(standing: Standing, group_best: float, batch: int) -> float:
    """Return the next batch's expected relative gain on the group's best; negative if it won't catch up."""
    new = standing.trials < batch
    reach = _FIRST_REACH if new else _REACH / math.sqrt(standing.trials / batch)
    if math.isinf(group_best):
        return reach
    if math.isinf(standing.best):
        return _REACH if new else -math.inf
    hope = standing.best * (1 - min(_MOST, reach + slope(standing.trace)))
    return 1 - hope / group_best


def slope(trace: Sequence[float]) -> float:
    """Return the mean relative improvement of the last two batches."""
    last = [time for time in trace[-3:] if math.isfinite(time)]
    if len(last) < 2:
        return 0.0
    return (1 - last[-1] / last[0]) / (len(last) - 1)


class TaskScheduler:
    """Divides a run's trials among its tasks.

    `batch`: trials of a task from which its gain is extrapolated.
    """

    def __init__(self, batch: int) -> None:
        self._batch = batch

    def next(self, standings: Sequence[Standing]) -> int | None:
        """Return the index of the task that gets the next batch; None if all are exhausted.

        Ties go to the task with fewer trials, then to the earlier task.
        """
        bests: dict[str, float] = {}
        for standing in standings:
            bests[standing.group] = min(standing.best, bests.get(standing.group, math.inf))
        open_tasks = [i for i, standing in enumerate(standings) if not standing.exhausted]
        if not open_tasks:
            return None
        return max(
            open_tasks,
            key=lambda i: (
                gain(standings[i], bests[standings[i].group], self._batch),
                -standings[i].trials,
                -i,
            ),
        )
