"""What a run knows of its tasks, and adds to it."""

from __future__ import annotations

from collections.abc import Mapping

from hbtvm.logs.record import Record
from hbtvm.logs.store import Log
from hbtvm.tuning.learning.transfer import completed
from hbtvm.tuning.state import TaskState

TaskKey = tuple[str, str, str]
"""Workload, target and strategy, as `hbtvm.logs.record.Record.task` gives them."""


class Database:
    """Records by whose they are: found in the log, or made by this run.

    Parameters
    ----------
    log
        Where every new record is appended at once. None keeps nothing.
    owners
        The run's tasks by the key of their records; they take over what the log has of them.

    Attributes
    ----------
    resumed
        The log's records of these tasks' spaces.
    foreign
        The log's records of other workloads, targets and strategies.
    history
        Every record made in this run, in order.
    notes
        What of the log was skipped, in sentences.

    Raises
    ------
    LogError
        If the log cannot be read.
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
        """Sort the log's records by whose they are."""
        read, outside = log.read(), 0
        for record in read.records:
            state = owners.get(record.task)
            if state is None:
                self.foreign.append(record)
                continue
            own = completed(record, state.task.space)
            if state.resume(own):
                self.resumed.append(own)
            else:
                outside += 1
        if read.skipped:
            self.notes.append(read.note(log.path))
        if outside:
            records = "record was" if outside == 1 else "records were"
            self.notes.append(
                f"{log.path}: {outside:,} {records} skipped, whose choices are no schedule of this model"
            )

    @property
    def records(self) -> list[Record]:
        """All that is known of the run's tasks, in the order in which it was measured."""
        return [*self.resumed, *self.history]

    def add(self, record: Record) -> None:
        """Keep a new record of one of the run's tasks.

        Raises
        ------
        LogError
            If the log cannot be written; the record is in `history` all the same.
        """
        self.history.append(record)
        if self._log is not None:
            self._log.append(record)
