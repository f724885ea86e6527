"""What a run knows of one task: what was tried, and what is to be tried next."""

from __future__ import annotations

import math

from hbtvm.logs.ranking import is_final
from hbtvm.logs.record import Record
from hbtvm.schedules.space import Config
from hbtvm.tuning.explorers.base import Explorer, Point
from hbtvm.tuning.result import Entry
from hbtvm.tuning.task import Task
from hbtvm.tuning.task_scheduler import Standing


class TaskState:
    """One task's side of a run.

    Parameters
    ----------
    index
        The task's place among the run's tasks.
    task
        The task.
    explorer
        Searches its space.

    Attributes
    ----------
    measured
        Seconds of each candidate tried; infinite if it failed.
    records
        The latest record of each.
    readings
        Seconds of each that its search measured, the final left aside; infinite if it failed.
    twins
        By fingerprint, the first candidate that was measured with it.
    exhausted
        Whether nothing more is to be tried: the explorer has nothing new, or builds cost too much.
    builds
        Processor seconds of each build of this run; infinite where it was stopped for taking too long.
    """

    def __init__(self, index: int, task: Task, explorer: Explorer) -> None:
        self.index = index
        self.task = task
        self.explorer = explorer
        self.measured: dict[Point, float] = {}
        self.records: dict[Point, Record] = {}
        self.readings: dict[Point, float] = {}
        self.twins: dict[str, Point] = {}
        self.exhausted = False
        self.builds: list[float] = []
        self._trace: list[float] = []

    def resume(self, record: Record) -> bool:
        """Take over a record of this very task from a log; the latest of each configuration counts.

        Returns
        -------
        Whether its configuration is in the task's space; if not, nothing is done.
        """
        known = self.task.space.contains(dict(record.config))
        if known:
            self.note(record)
        return known

    def note(self, record: Record) -> None:
        """Take in a new record of a configuration of this task's space."""
        point = self.task.space.encode(dict(record.config))
        self.measured[point] = record.cost
        self.records[point] = record
        if not is_final(record):
            self.readings[point] = record.cost

    def begin_batch(self) -> None:
        """Note where the task stands before a batch, to tell its progress."""
        self._trace.append(self.best)

    def knows(self, config: Config) -> bool:
        """Whether a configuration was tried."""
        return self.task.space.encode(config) in self.measured

    @property
    def best(self) -> float:
        """Seconds of the fastest candidate; infinite without one."""
        return min(self.measured.values(), default=math.inf)

    @property
    def standing(self) -> Standing:
        """How far it has come, for `hbtvm.tuning.task_scheduler.TaskScheduler`."""
        trace = (*self._trace[-3:], self.best)
        return Standing(self.task.group, len(self.measured), trace, self.exhausted)

    def entries(self) -> list[Entry]:
        """Candidates that work, fastest first, each by its latest record."""
        working = [record for record in self.records.values() if record.times]
        working.sort(key=lambda record: record.cost)
        return [self.entry(record) for record in working]

    def entry(self, record: Record) -> Entry:
        """A record of this task that has times, as a result tells it."""
        return Entry(self.task, dict(record.config), record.cost, record.times, is_final(record))
