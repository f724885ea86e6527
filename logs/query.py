"""What is read off many records: the best, the counts, and smaller or joined logs."""

from __future__ import annotations

import functools
import lzma
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from hbtvm.logs.ranking import deciding, ranking
from hbtvm.logs.record import Record, canonical
from hbtvm.logs.store import Log, LogError, parse
from hbtvm.logs.targets import target_key

DRAWN = "drawn"
"""The field of a record's ``extra`` that marks candidates drawn at random (see `drawn`)."""


@dataclass(frozen=True)
class MergeResult:
    """What `merge` did: records written, identical ones dropped, lines skipped on reading.

    `notes` has a sentence for each log with skipped lines (see `hbtvm.logs.store.ReadResult.note`).
    """

    written: int
    duplicates: int
    skipped: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class PruneResult:
    """What `prune` did: records kept and dropped, lines that were no records (dropped too)."""

    kept: int
    dropped: int
    skipped: int


@dataclass(frozen=True)
class Stats:
    """What a log holds.

    Attributes
    ----------
    records, failed
        Number of records, and of those that carry an error.
    skipped
        Lines that were not records.
    workloads, strategies, targets
        Number of records of each, by workload key, name and target key.
    failures
        Number of failed records by kind of error.
    best
        Record of the fastest candidate of each (workload key, target key, strategy), by the rule of
        `hbtvm.logs.ranking`.
    first, last
        Dates of the oldest and newest record; ``None`` for an empty log.
    """

    records: int
    failed: int
    skipped: int
    workloads: Mapping[str, int]
    strategies: Mapping[str, int]
    targets: Mapping[str, int]
    failures: Mapping[str, int]
    best: Mapping[tuple[str, str, str], Record]
    first: str | None
    last: str | None


def best(
    records: Iterable[Record],
    workload: Mapping[str, Any] | None = None,
    target: Mapping[str, Any] | None = None,
    strategy: str | None = None,
) -> Record | None:
    """Find the record of the fastest candidate, among the records that match what is given.

    Within one workload and target, finals decide (see `hbtvm.logs.ranking`); of several, the fastest winner
    is returned. Failures and empty configurations never win. Targets match by `target_key`. Between
    equally fast records the earlier one wins.

    Returns
    -------
    Record or None
        ``None`` where no record matches.
    """
    workload_key = None if workload is None else canonical(workload)
    machine = None if target is None else target_key(target)
    matching = (
        record
        for record in records
        if (strategy is None or record.strategy == strategy)
        and (workload_key is None or record.workload_key == workload_key)
        and (machine is None or record.target_key == machine)
    )
    winners = (ranked[0] for group in _by_workload(matching) if (ranked := ranking(group)))
    return min(winners, key=lambda record: record.cost, default=None)


def stats(records: Sequence[Record], skipped: int = 0) -> Stats:
    """Count and summarise records (`skipped` is passed through from `ReadResult`)."""
    dates = sorted((record.date for record in records), key=_moment)
    return Stats(
        records=len(records),
        failed=sum(record.error is not None for record in records),
        skipped=skipped,
        workloads=Counter(record.workload_key for record in records),
        strategies=Counter(record.strategy for record in records),
        targets=Counter(record.target_key for record in records),
        failures=Counter(record.error["kind"] for record in records if record.error is not None),
        best={task: found for task, group in _by_task(records).items() if (found := best(group))},
        first=dates[0] if dates else None,
        last=dates[-1] if dates else None,
    )


def merge(paths: Iterable[str | os.PathLike[str]], out: str | os.PathLike[str]) -> MergeResult:
    """Join logs into one, oldest record first, identical records once.

    The output is written as a whole or not at all; what stood there is lost, unless `out` is
    among the inputs.

    Raises
    ------
    LogError
        If an input does not exist or cannot be read, or the output cannot be written.
    """
    distinct: dict[str, Record] = {}
    total = skipped = 0
    notes: list[str] = []
    target = Log(out)
    with target.locked():
        for path in paths:
            if not Path(path).exists():
                raise LogError(f"cannot read tuning log {path}: it does not exist")
            result = Log(path).read()
            skipped += result.skipped
            notes += filter(None, [result.note(path)])
            total += len(result.records)
            for record in result.records:
                distinct.setdefault(record.to_line(), record)
        target.replace(sorted(distinct.values(), key=lambda record: _moment(record.date)))
    return MergeResult(len(distinct), total - len(distinct), skipped, tuple(notes))


def prune(
    path: str | os.PathLike[str], *, keep: int = 32, others: int = 128, errors: int = 32
) -> PruneResult:
    """Shrink a log in place; what is kept stays in its order.

    Of each (workload, target, strategy) three kinds of records are kept, and the winner with the finals
    that made it the winner, so that `best` stays the same. Lines that are not records of this schema
    version are dropped.

    Parameters
    ----------
    path
        The log; others may be appending to it meanwhile.
    keep
        Number of fastest records; with 0, the winner and its finals go too.
    others
        Number of slower ones, spread evenly over the ranking: a cost model must also know
        what slow looks like.
    errors
        Number of failures, the newest.

    Raises
    ------
    LogError
        If the log does not exist, or cannot be read or written.
    ValueError
        If a number is negative.
    """
    if min(keep, others, errors) < 0:
        raise ValueError("keep, others and errors must not be negative")
    log = Log(path)
    with log.locked():
        if not log.path.exists():
            raise LogError(f"cannot read tuning log {path}: it does not exist")
        result = log.read()
        kept: set[int] = set()
        for group in _by_task(result.records).values():
            ranked = sorted((record for record in group if record.times), key=lambda record: record.cost)
            failed = sorted((record for record in group if record.error), key=lambda r: _moment(r.date))
            chosen = ranked[:keep] + _spread(ranked[keep:], others) + failed[max(len(failed) - errors, 0) :]
            kept.update(id(record) for record in chosen)
        if keep:
            for group in (*_by_workload(result.records), *_by_task(result.records).values()):
                kept.update(id(record) for record in (*ranking(group)[:1], *deciding(group)))
        log.replace(record for record in result.records if id(record) in kept)
    return PruneResult(len(kept), len(result.records) - len(kept), result.skipped)


def shipped() -> list[Record]:
    """Winners that come with the package, tuned beforehand: what is worth trying first."""
    return list(_winners())


@functools.cache
def _winners() -> tuple[Record, ...]:
    # Parsing them takes as long as compiling a small model.
    return tuple(_packaged(".jsonl", bytes))


def contrast() -> list[Record]:
    """Records of candidates drawn at random that come with the package: what cost models learn from.

    Each is marked (`drawn`), as the fastest of a few random candidates is not worth trying first.
    """
    return _packaged(".jsonl.xz", lzma.decompress)


def drawn(record: Record) -> bool:
    """Whether a record is of a candidate drawn at random, of which none was searched for."""
    return bool(record.extra.get(DRAWN))


def _packaged(suffix: str, unpacked: Callable[[bytes], bytes]) -> list[Record]:
    """The records of the files that come with the package and whose names end so, in the names' order."""
    folder = resources.files("hbtvm.logs") / "records"
    if not folder.is_dir():
        return []
    files = sorted((entry for entry in folder.iterdir() if entry.name.endswith(suffix)), key=lambda e: e.name)
    return [record for file in files for record in parse(unpacked(file.read_bytes()).splitlines()).records]


def _by_workload(records: Iterable[Record]) -> list[list[Record]]:
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        groups.setdefault((record.workload_key, record.target_key), []).append(record)
    return list(groups.values())


def _by_task(records: Iterable[Record]) -> dict[tuple[str, str, str], list[Record]]:
    groups: dict[tuple[str, str, str], list[Record]] = {}
    for record in records:
        groups.setdefault(record.task, []).append(record)
    return groups


def _moment(date: str) -> str:
    """Text whose order is the order in time: the zone is always UTC, the fraction optional."""
    return date.removesuffix("Z").removesuffix("+00:00")


def _spread(records: list[Record], count: int) -> list[Record]:
    if count >= len(records):
        return records
    return [records[(2 * i + 1) * len(records) // (2 * count)] for i in range(count)]
