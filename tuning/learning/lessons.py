"""Choose the records that train a global model, and encode them as one table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hbtvm.logs.record import Record
from hbtvm.tuning.learning.tables import DescribeRecord, Tables, understood
from hbtvm.tuning.learning.transfer import nearest
from hbtvm.tuning.task import Task

_RECORDS = 3000  # most records of a global model: more cost time and add little
_RECORDS_LOWERED = 384  # the same where each record's program must be lowered, which takes seconds in all
_WORKLOADS = 48  # most workloads that the records come from; encoding each takes milliseconds
_TELLING = 8  # fewest records of a workload to learn from: a few winners show no slow candidates


@dataclass(frozen=True, eq=False)
class Lessons:
    """Measurements of other workloads."""

    features: NDArray[np.float32]  # float32, (n, D)
    costs: NDArray[np.float64]  # seconds, (n,); infinite for failures
    groups: NDArray[np.intp]  # index of each record's workload, target and strategy, (n,)


def lessons(
    records: Iterable[Record],
    tasks: Sequence[Task],
    tables: Tables,
    describe: DescribeRecord,
    fail: Callable[[Exception], None],
) -> Lessons | None:
    """Choose records of the workloads most similar to the tasks'; None if none can be used.

    `describe`: returns the loops and the space of a record's workload.
    `fail`: receives errors: a log may hold anything.
    """
    groups: dict[tuple[str, str, str], list[Record]] = {}
    for record in records:
        groups.setdefault(record.task, []).append(record)
    telling = [group for group in groups.values() if len(group) >= _TELLING]
    chosen = nearest(telling, tasks, _WORKLOADS)
    most = _RECORDS_LOWERED if tables.reads_loops else _RECORDS
    share = max(_TELLING, most // max(len(chosen), 1))
    parts: list[tuple[NDArray[np.float32], list[float]]] = []
    for group in chosen:
        # Evenly over the search, which begins with random candidates and ends with predicted ones.
        kept = np.unique(np.linspace(0, len(group) - 1, share).astype(int))
        try:
            known = understood([group[i] for i in kept], describe)
            if known is not None and len(known.records) > 1:
                parts.append((tables.of(known, known.configs), [record.cost for record in known.records]))
        except Exception as error:
            fail(error)
    if not parts:
        return None
    return Lessons(
        features=np.concatenate([table for table, _ in parts]),
        costs=np.concatenate([costs for _, costs in parts]),
        groups=np.repeat(np.arange(len(parts)), [len(costs) for _, costs in parts]),
    )
