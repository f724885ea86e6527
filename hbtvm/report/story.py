"""A tuning log's records, grouped by workload for the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from hbtvm.logs.ranking import is_final, ranking
from hbtvm.logs.record import Record
from hbtvm.wording import unit


@dataclass(frozen=True)
class Chapter:
    """One workload on one machine: the candidates among which the fastest is sought.

    Attributes
    ----------
    workload, target
        What was tuned, and for which machine.
    records
        All its records in the order in which they were written.
    """

    workload: Mapping[str, Any]
    target: Mapping[str, Any]
    records: Sequence[Record]

    @cached_property
    def trials(self) -> list[Record]:
        """The search's own records: a final measures anew what was tried before."""
        return [record for record in self.records if not is_final(record)]

    @cached_property
    def strategies(self) -> list[str]:
        """Names of the strategies tried, the winner's first, then by their best candidates."""
        names = dict.fromkeys(record.strategy for record in ranking(self.records))
        return [*names, *sorted({record.strategy for record in self.records} - set(names))]

    def winner(self, strategy: str | None = None) -> Record | None:
        """The best candidate of one strategy, or of all, by the rule of `hbtvm.logs.ranking`."""
        own = (record for record in self.records if strategy in (None, record.strategy))
        return next(iter(ranking(own)), None)

    def curve(self, strategy: str) -> list[tuple[int, float]]:
        """Best seconds so far of a strategy: (number of the chapter's trial, seconds) at each step down.

        The last point is at the chapter's last trial.
        """
        points: list[tuple[int, float]] = []
        for number, record in enumerate(self.trials, 1):
            better = not points or record.cost < points[-1][1]
            if record.strategy == strategy and record.times and better:
                points.append((number, record.cost))
        if points and points[-1][0] < len(self.trials):
            points.append((len(self.trials), points[-1][1]))
        return points

    def counts(self, strategy: str) -> tuple[int, int]:
        """Trials of a strategy, and how many of them failed."""
        own = [record for record in self.trials if record.strategy == strategy]
        return len(own), sum(record.error is not None for record in own)

    @property
    def rows(self) -> int | None:
        """Rows (or structures, see `unit`) in a call, where the workload tells."""
        rows = self.workload.get("rows")
        return rows if isinstance(rows, int) else None

    @property
    def unit(self) -> str:
        """What rows are: rows, or structures."""
        return unit(self.workload)


@dataclass(frozen=True)
class Story:
    """A log's records, grouped.

    Attributes
    ----------
    chapters
        Its workloads: those of one shape and machine together, by rows in a call.
    records
        All its records.
    skipped
        Lines that are no records.
    """

    chapters: Sequence[Chapter]
    records: Sequence[Record]
    skipped: int = 0

    @cached_property
    def strategies(self) -> list[str]:
        """Names of all strategies, in the order of their names, so that each keeps its colour."""
        return sorted({record.strategy for record in self.records})

    @cached_property
    def failures(self) -> list[tuple[str, int, str, str]]:
        """Kinds of failure, most frequent first: kind, number, and the latest one's strategy and message."""
        numbers: Counter[str] = Counter()
        latest: dict[str, tuple[str, str]] = {}
        for record in self.records:
            if record.error is not None:
                numbers[record.error["kind"]] += 1
                latest[record.error["kind"]] = record.strategy, record.error["message"]
        return [(kind, number, *latest[kind]) for kind, number in numbers.most_common()]


def tell(records: Sequence[Record], skipped: int = 0) -> Story:
    """Put a log's records in order."""
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        groups.setdefault((record.workload_key, record.target_key), []).append(record)
    chapters = [Chapter(group[0].workload, group[0].target, group) for group in groups.values()]
    # Batch sizes of one model stand together, models in the order in which they were tuned.
    models: dict[str, int] = {}
    for chapter in chapters:
        models.setdefault(_model(chapter), len(models))
    chapters.sort(key=lambda chapter: (models[_model(chapter)], chapter.rows or 0))
    return Story(chapters, records, skipped)


def _model(chapter: Chapter) -> str:
    shape = {key: value for key, value in chapter.workload.items() if key not in ("rows", "threads")}
    return f"{sorted(shape.items())} {chapter.records[0].target_key}"
