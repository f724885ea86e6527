"""A tuning log's records, grouped by workload for the report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from hbtvm.logs.ranking import is_final, ranking
from hbtvm.logs.record import Record
from hbtvm.words.quantities import count, model_shape, unit


@dataclass(frozen=True)
class Chapter:
    """The candidates of one workload on one machine."""

    # `workload`, `target`: the workload and the machine
    workload: Mapping[str, Any]
    target: Mapping[str, Any]
    records: Sequence[Record]  # its records in the order of writing

    @cached_property
    def trials(self) -> list[Record]:
        """The search's records, without the repeated measurements of finals."""
        return [record for record in self.records if not is_final(record)]

    @cached_property
    def strategies(self) -> list[str]:
        """Names of the tried strategies, ordered by their best candidates, the winner's first."""
        names = dict.fromkeys(record.strategy for record in ranking(self.records))
        return [*names, *sorted({record.strategy for record in self.records} - set(names))]

    def winner(self, strategy: str | None = None) -> Record | None:
        """Return the best candidate of a strategy, or of all, by the rule of `hbtvm.logs.ranking`."""
        records = (record for record in self.records if strategy in (None, record.strategy))
        return next(iter(ranking(records)), None)

    def curve(self, strategy: str) -> list[tuple[int, float]]:
        """Return a strategy's best seconds so far as (trial number, seconds) at each improvement.

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
        """Return a strategy's number of trials, and of failures."""
        trials = [record for record in self.trials if record.strategy == strategy]
        return len(trials), sum(record.error is not None for record in trials)

    @property
    def rows(self) -> int | None:
        """Rows (or structures, see `unit`) per call; None if unknown."""
        rows = self.workload.get("rows")
        return rows if isinstance(rows, int) else None

    @cached_property
    def name(self) -> str:
        """Names of the models' files or classes; their shape if the records name none."""
        names = list(
            dict.fromkeys(record.extra["model"] for record in self.records if "model" in record.extra)
        )
        more = [f"{len(names) - 3} more"] if len(names) > 4 else names[3:]
        return ", ".join([*names[:3], *more]) or model_shape(self.workload)

    @property
    def size(self) -> str:
        """Rows (or structures) per call in words."""
        return count(self.rows, self.unit) if self.rows else "-"

    @property
    def unit(self) -> str:
        """The unit of `rows`: rows or structures."""
        return unit(self.workload)


@dataclass(frozen=True)
class Story:
    """A log's records, grouped."""

    # Its workloads: those of the same shape and machine together, by rows per call
    chapters: Sequence[Chapter]
    records: Sequence[Record]  # all its records
    skipped: int = 0  # number of invalid lines
    # By the chapter's index, the measurement of the schedule that the model has without a search
    defaults: Mapping[int, Record] = field(default_factory=dict)

    @cached_property
    def strategies(self) -> list[str]:
        """Names of all strategies, sorted, so that each keeps its colour."""
        return sorted({record.strategy for record in self.records})

    @cached_property
    def failures(self) -> list[tuple[str, int, str, str]]:
        """Kinds of failures, most frequent first: kind, count, and the latest strategy and message."""
        numbers: Counter[str] = Counter()
        latest: dict[str, tuple[str, str]] = {}
        for record in self.records:
            if record.error is not None:
                numbers[record.error["kind"]] += 1
                latest[record.error["kind"]] = record.strategy, record.error["message"]
        return [(kind, number, *latest[kind]) for kind, number in numbers.most_common()]


def tell(
    records: Sequence[Record],
    skipped: int = 0,
    default: Callable[[Sequence[Record]], Record | None] = lambda records: None,
) -> Story:
    """Group a log's records by workload.

    `default`: picks the measurement of the default schedule among a workload's records.
    """
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        groups.setdefault((record.workload_key, record.target_key), []).append(record)
    chapters = [Chapter(group[0].workload, group[0].target, group) for group in groups.values()]
    # Keep batch sizes of a model together, and models in the order of tuning.
    models: dict[str, int] = {}
    for chapter in chapters:
        models.setdefault(_model(chapter), len(models))
    chapters.sort(key=lambda chapter: (models[_model(chapter)], chapter.rows or 0))
    defaults = {index: default(chapter.records) for index, chapter in enumerate(chapters)}
    measured = {index: record for index, record in defaults.items() if record is not None}
    return Story(chapters, records, skipped, measured)


def _model(chapter: Chapter) -> str:
    shape = {key: value for key, value in chapter.workload.items() if key not in ("rows", "threads")}
    return f"{sorted(shape.items())} {chapter.records[0].target_key}"
