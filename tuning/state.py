"""The state of one task in a run: its results and its explorer."""

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
    """The state of one task.

    `index`: the task's index among the run's tasks.
    `explorer`: searches its space.
    `measured`: seconds of each candidate tried; infinite for failures.
    `records`: the latest record of each candidate.
    `readings`: seconds that the search, not the final, measured; infinite for failures.
    `twins`: the first candidate measured with each fingerprint.
    `exhausted`: whether the task gets no more trials: no new candidates, or builds that cost too much.
    `builds`: processor seconds of each build of this run; infinite for builds that timed out.
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
        """Take over a log's record, the latest of each configuration; False if the space lacks its config."""
        known = self.task.space.contains(dict(record.config))
        if known:
            self.note(record)
        return known

    def note(self, record: Record) -> None:
        """Add a record of a configuration in the task's space."""
        point = self.task.space.encode(dict(record.config))
        self.measured[point] = record.cost
        self.records[point] = record
        if not is_final(record):
            self.readings[point] = record.cost

    def begin_batch(self) -> None:
        """Note the best time before a batch."""
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
        """The task's progress, for `hbtvm.tuning.task_scheduler.TaskScheduler`."""
        trace = (*self._trace[-3:], self.best)
        return Standing(self.task.group, len(self.measured), trace, self.exhausted)

    def entries(self) -> list[Entry]:
        """Working candidates by their latest records, fastest first."""
        working = [record for record in self.records.values() if record.times]
        working.sort(key=lambda record: record.cost)
        return [self.entry(record) for record in working]

    def entry(self, record: Record) -> Entry:
        """Convert a record with times to an `Entry`."""
        return Entry(self.task, dict(record.config), record.cost, record.times, is_final(record))
