"""In which order candidates are measured: every batch size in turn, and best guesses first."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping

from hbtvm.measuring.archive import Candidate, Trials

_GUESSES = 6
"""Candidates of a group that are measured as the archive has them, before any is picked by what was found."""


class Order:
    """What is to be measured next, so that a run that is cut off has tried the most promising of each group.

    Groups take turns. Within a group the archive's order counts, which begins with best guesses; after those,
    every second candidate is the one that shares most choices with the fastest so far. Tasks that are far
    behind come last.

    Parameters
    ----------
    trials
        The archive.
    done
        Numbers of candidates that are measured already.
    """

    def __init__(self, trials: Trials, done: Iterable[int] = ()) -> None:
        self._tasks = trials.tasks
        known = set(done)
        self._waiting: dict[str, list[Candidate]] = {}
        self._count: dict[str, int] = {}
        for one in trials.candidates:
            group = self.group(one)
            self._count.setdefault(group, 0)
            self._waiting.setdefault(group, [])
            if one.number in known:
                self._count[group] += 1
            else:
                self._waiting[group].append(one)
        self._turns = list(self._waiting)

    def group(self, candidate: Candidate) -> str:
        """The group that a candidate belongs to, such as a batch size."""
        return self._tasks[candidate.task].group

    @property
    def left(self) -> int:
        """How many candidates wait."""
        return sum(map(len, self._waiting.values()))

    def next(self, fastest: Mapping[str, Candidate], behind: Collection[int] = ()) -> Candidate | None:
        """Take the next candidate; None if none is left.

        Parameters
        ----------
        fastest
            The fastest so far of each group that has one.
        behind
            Numbers of tasks that are far behind their groups.
        """
        for _ in self._turns:
            group = self._turns.pop(0)
            self._turns.append(group)
            waiting = self._waiting[group]
            if waiting:
                promising = (at for at, one in enumerate(waiting) if one.task not in behind)
                place = next(promising, 0)
                best, count = fastest.get(group), self._count[group]
                if best is not None and count >= _GUESSES and count % 2:
                    place = min(range(len(waiting)), key=lambda at: _distance(waiting[at], best))
                self._count[group] += 1
                return waiting.pop(place)
        return None


def _distance(one: Candidate, other: Candidate) -> float:
    """Knobs at which two candidates differ; infinite for those of different tasks."""
    if one.task != other.task:
        return math.inf
    theirs = other.config
    return sum(choice != theirs.get(knob) for knob, choice in one.config.items())
