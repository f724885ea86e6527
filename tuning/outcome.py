"""The results of each group, ranked as logs rank them (`hbtvm.logs.ranking`)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from hbtvm.logs.ranking import ranking
from hbtvm.logs.record import Record
from hbtvm.tuning.database import TaskKey
from hbtvm.tuning.result import Entry, GroupResult
from hbtvm.tuning.state import TaskState


def ranked(
    owners: Mapping[TaskKey, TaskState], records: Sequence[Record]
) -> dict[str, list[tuple[TaskState, Entry]]]:
    """Return each group's working candidates, best first.

    `owners`: the run's tasks by log key.
    `records`: all records of these tasks, in the order of writing.
    """
    by_group: dict[str, list[Record]] = {state.task.group: [] for state in owners.values()}
    for record in records:
        by_group[owners[record.task].task.group].append(record)
    return {
        group: [(owners[record.task], owners[record.task].entry(record)) for record in ranking(group_records)]
        for group, group_records in by_group.items()
    }


def incumbents(
    owners: Mapping[TaskKey, TaskState], records: Sequence[Record]
) -> list[tuple[TaskState, Entry]]:
    """Return the winners of the groups' earlier finals."""
    finalists = ([pair for pair in pairs if pair[1].final] for pairs in ranked(owners, records).values())
    return [pairs[0] for pairs in finalists if pairs]


def group_results(owners: Mapping[TaskKey, TaskState], records: Sequence[Record]) -> dict[str, GroupResult]:
    """Summarise each group, in the order of the tasks."""
    results: dict[str, GroupResult] = {}
    for group, pairs in ranked(owners, records).items():
        entries = [entry for _, entry in pairs]
        states = [state for state in owners.values() if state.task.group == group]
        errors = [record.error for state in states for record in state.records.values() if record.error]
        rows = states[0].task.workload.get("rows")
        usual = [(states[0].task, config) for config in states[0].task.initial[:1]]
        results[group] = GroupResult(
            best=entries[0] if entries else None,
            runners_up=tuple(entries[1:6]),
            trials=sum(len(state.measured) for state in states),
            failures=Counter(error["kind"] for error in errors),
            example={error["kind"]: error["message"] for error in errors},
            rows=rows if isinstance(rows, int) else None,
            default=next((entry for entry in entries if (entry.task, entry.config) in usual), None),
        )
    return results
