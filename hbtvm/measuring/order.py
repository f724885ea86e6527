"""The order of measurements: batch sizes in turn, first guesses first."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping

from hbtvm.measuring.archive import Candidate, Trials

_GUESSES = 6  # first candidates of a group that keep the archive's order


class Order:
    """Chooses the next candidate, so that a run that is cut off has tried the best guesses of each group.

    Groups take turns. A group follows the archive's order, first guesses first; after those, every second
    candidate is the one that shares most choices with the fastest so far. Tasks far behind come last.

    `done`: numbers of the measured candidates.
    """

    def __init__(self, trials: Trials, done: Iterable[int] = ()) -> None:
        self._tasks = trials.tasks
        known = set(done)
        self._waiting: dict[str, list[Candidate]] = {}
        self._count: dict[str, int] = {}
        for candidate in trials.candidates:
            group = self.group(candidate)
            self._count.setdefault(group, 0)
            self._waiting.setdefault(group, [])
            if candidate.number in known:
                self._count[group] += 1
            else:
                self._waiting[group].append(candidate)
        self._turns = list(self._waiting)

    def group(self, candidate: Candidate) -> str:
        """The candidate's group, such as a batch size."""
        return self._tasks[candidate.task].group

    @property
    def left(self) -> int:
        """Number of waiting candidates."""
        return sum(map(len, self._waiting.values()))

    def next(self, fastest: Mapping[str, Candidate], behind: Collection[int] = ()) -> Candidate | None:
        """Return the next candidate; None if none is left.

        `fastest`: the fastest candidate of each group so far.
        `behind`: numbers of the tasks that are far behind their groups.
        """
        for _ in self._turns:
            group = self._turns.pop(0)
            self._turns.append(group)
            waiting = self._waiting[group]
            if waiting:
                promising = (at for at, candidate in enumerate(waiting) if candidate.task not in behind)
                place = next(promising, 0)
                best, count = fastest.get(group), self._count[group]
                if best is not None and count >= _GUESSES and count % 2:
                    place = min(range(len(waiting)), key=lambda at: _distance(waiting[at], best))
                self._count[group] += 1
                return waiting.pop(place)
        return None


def _distance(candidate: Candidate, other: Candidate) -> float:
    """Number of knobs at which two candidates differ; infinite for different tasks."""
    if candidate.task != other.task:
        return math.inf
    other_config = other.config
    return sum(choice != other_config.get(knob) for knob, choice in candidate.config.items())
