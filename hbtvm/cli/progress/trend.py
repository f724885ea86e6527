"""Draw each strategy's best time over a run as a line of small bars."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from hbtvm.tuning.progress import Trial

_BARS = "▁▂▃▄▅▆▇█"


@dataclass
class Course:
    """Progress of a strategy for a batch size."""

    # `trials`, `failed`: candidates, and failed candidates, so far
    trials: int = 0
    failed: int = 0
    # Seconds of the fastest candidate after each successful trial
    best: list[float] = field(default_factory=list)
    final: float | None = None  # seconds of its fastest finalist

    def update(self, trial: Trial) -> None:
        """Add a trial."""
        if trial.final:
            if trial.time is not None:
                self.final = trial.time if self.final is None else min(self.final, trial.time)
            return
        self.trials += 1
        if trial.time is None:
            self.failed += 1
        else:
            self.best.append(min(trial.time, self.best[-1]) if self.best else trial.time)


class Courses:
    """Progress of all strategies, by batch size and strategy, in the order of first trials."""

    def __init__(self) -> None:
        self.by_group: dict[str, dict[str, Course]] = {}

    def update(self, trial: Trial) -> None:
        """Add a trial."""
        self.by_group.setdefault(trial.group, {}).setdefault(trial.strategy, Course()).update(trial)


def times(courses: Sequence[Course]) -> list[float | None]:
    """Return the time of each of a batch size's strategies, or None.

    After the final, the times of finalists count, and faster readings of other strategies do not.
    """
    finals = [course.final for course in courses if course.final is not None]
    readings = [course.best[-1] if course.best else None for course in courses]
    if not finals:
        return readings
    standing = [None if reading is None or reading < min(finals) else reading for reading in readings]
    return [
        reading if course.final is None else course.final
        for course, reading in zip(courses, standing, strict=True)
    ]


def bars(best: list[float], fastest: float, width: int) -> str:
    """Draw a course: higher bars are faster, and the highest is as fast as the group's fastest.

    `best`: falling seconds, at least one.
    `fastest`: seconds of the highest bar.
    `width`: most characters. Each 10% of slowdown lowers a bar by an eighth.
    """
    count = min(width, len(best))
    shown = [best[round(i * (len(best) - 1) / max(count - 1, 1))] for i in range(count)]
    lowest = len(_BARS) - 1
    steps = [min(lowest, max(0, round(math.log(seconds / fastest) / math.log(1.1)))) for seconds in shown]
    return "".join(_BARS[lowest - step] for step in steps)
