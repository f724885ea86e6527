"""The records of a run's tasks: from the log, and new ones."""

from __future__ import annotations

from collections.abc import Mapping

from hbtvm.logs.record import Record
from hbtvm.logs.store import Log
from hbtvm.tuning.learning.transfer import completed
from hbtvm.tuning.state import TaskState

TaskKey = tuple[str, str, str]  # workload, target and strategy (`hbtvm.logs.record.Record.task`)


class Database:
    """Sorts the log's records by task, and appends new ones.

    `log`: receives every new record at once; None keeps nothing.
    `owners`: the run's tasks by log key; they take over their records.
    `resumed`: the log's records of these tasks' spaces.
    `foreign`: the log's records of other workloads, targets and strategies.
    `history`: every record made in this run, in order.
    `notes`: a sentence on each kind of skipped record.
    Raises `LogError` if the log cannot be read.
    """

    def __init__(self, log: Log | None, owners: Mapping[TaskKey, TaskState]) -> None:
        self._log = log
        self.resumed: list[Record] = []
        self.foreign: list[Record] = []
        self.history: list[Record] = []
        self.notes: list[str] = []
        if log is not None:
            self._take_over(log, owners)

    def _take_over(self, log: Log, owners: Mapping[TaskKey, TaskState]) -> None:
        """Sort the log's records by task."""
        read, outside = log.read(), 0
        for record in read.records:
            state = owners.get(record.task)
            if state is None:
                self.foreign.append(record)
                continue
            whole = completed(record, state.task.space)
            if state.resume(whole):
                self.resumed.append(whole)
            else:
                outside += 1
        if read.skipped:
            self.notes.append(read.note(log.path))
        if outside:
            records = "record was" if outside == 1 else "records were"
            self.notes.append(
                f"{log.path}: {outside:,} {records} skipped: this model's spaces lack their configurations"
            )

    @property
    def records(self) -> list[Record]:
        """All records of the run's tasks, in the order of measurement."""
        return [*self.resumed, *self.history]

    def add(self, record: Record) -> None:
        """Add a new record.

        Raises `LogError` if the log cannot be written; `history` has the record.
        """
        self.history.append(record)
        if self._log is not None:
            self._log.append(record)
