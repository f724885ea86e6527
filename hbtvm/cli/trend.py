"""Each strategy's best time so far during a run, drawn as a line of small bars."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from hbtvm.tuning.progress import Trial

_BARS = "▁▂▃▄▅▆▇█"


@dataclass
class Course:
    """Progress of one strategy for one batch size.

    Attributes
    ----------
    trials, failed
        Candidates so far, and those of them that failed.
    best
        Seconds of the fastest after each trial that succeeded.
    """

    trials: int = 0
    failed: int = 0
    best: list[float] = field(default_factory=list)

    def update(self, trial: Trial) -> None:
        """Take note of a trial."""
        if trial.final:
            return
        self.trials += 1
        if trial.time is None:
            self.failed += 1
        else:
            self.best.append(min(trial.time, self.best[-1]) if self.best else trial.time)


class Courses:
    """The progress of all strategies, by batch size and strategy, in the order of their first trials."""

    def __init__(self) -> None:
        self.by_group: dict[str, dict[str, Course]] = {}

    def update(self, trial: Trial) -> None:
        """Take note of a trial."""
        self.by_group.setdefault(trial.group, {}).setdefault(trial.strategy, Course()).update(trial)


def bars(best: list[float], fastest: float, width: int) -> str:
    """Draw a course: the higher a bar, the faster; the highest is as fast as the group's fastest.

    Parameters
    ----------
    best
        Falling seconds, at least one.
    fastest
        Seconds that the highest bar stands for.
    width
        Most characters. Bars are an eighth lower for each tenth that a time is slower, by ratio.
    """
    count = min(width, len(best))
    shown = [best[round(i * (len(best) - 1) / max(count - 1, 1))] for i in range(count)]
    lowest = len(_BARS) - 1
    steps = [min(lowest, max(0, round(math.log(seconds / fastest) / math.log(1.1)))) for seconds in shown]
    return "".join(_BARS[lowest - step] for step in steps)
