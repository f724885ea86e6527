"""Queries over records: the best candidate, statistics, merging and pruning."""

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

DRAWN = "drawn"  # the field of a record's ``extra`` that marks candidates drawn at random (see `drawn`)


@dataclass(frozen=True)
class MergeResult:
    """Result of `merge`: records written, duplicates dropped, lines skipped.

    `notes` has a sentence for each log with skipped lines (see `hbtvm.logs.store.ReadResult.note`).
    """

    written: int
    duplicates: int
    skipped: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class PruneResult:
    """Result of `prune`: records kept and dropped, and invalid lines, which are dropped too."""

    kept: int
    dropped: int
    skipped: int


@dataclass(frozen=True)
class Stats:
    """Statistics of a log."""

    # `records`, `failed`: number of records, and of records with an error
    records: int
    failed: int
    skipped: int  # number of invalid lines
    # `workloads`, `strategies`, `targets`: number of records of each, by workload key, name and target key
    workloads: Mapping[str, int]
    strategies: Mapping[str, int]
    targets: Mapping[str, int]
    failures: Mapping[str, int]  # number of failed records by kind of error
    # The fastest candidate's record for each (workload key, target key, strategy), by the rule of
    # `hbtvm.logs.ranking`
    best: Mapping[tuple[str, str, str], Record]
    # `first`, `last`: dates of the oldest and newest record; ``None`` for an empty log
    first: str | None
    last: str | None


def best(
    records: Iterable[Record],
    workload: Mapping[str, Any] | None = None,
    target: Mapping[str, Any] | None = None,
    strategy: str | None = None,
) -> Record | None:
    """Return the fastest candidate's record among the records that match the arguments.

    Within one workload and target, finals decide (see `hbtvm.logs.ranking`). Across several, the fastest
    winner is returned. Failures and empty configurations never win. Targets match by `target_key`. Of equally
    fast records, the earlier wins. Returns ``None`` if no record matches.
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
    """Summarise records; `skipped` is copied from `ReadResult`."""
    dates = sorted((record.date for record in records), key=_moment)
    return Stats(
        records=len(records),
        failed=sum(record.error is not None for record in records),
        skipped=skipped,
        workloads=Counter(record.workload_key for record in records),
        strategies=Counter(record.strategy for record in records),
        targets=Counter(record.target_key for record in records),
        failures=Counter(record.error["kind"] for record in records if record.error is not None),
        best={task: record for task, group in _by_task(records).items() if (record := best(group))},
        first=dates[0] if dates else None,
        last=dates[-1] if dates else None,
    )


def merge(paths: Iterable[str | os.PathLike[str]], out: str | os.PathLike[str]) -> MergeResult:
    """Merge logs into one, oldest record first, without duplicates.

    The output is written completely or not at all. It replaces an existing file, which is merged only if it
    is among the inputs. Raises `LogError` if an input does not exist or cannot be read, or the output cannot
    be written.
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
    """Shrink a log in place, keeping its order.

    For each (workload, target, strategy), keep three kinds of records, and the winner with the finals that
    decided it, so that `best` does not change. Drop invalid lines.

    `path`: the log; other processes may append to it meanwhile.
    `keep`: number of fastest records; 0 drops the winner and its finals too.
    `others`: number of slower records, spread evenly over the ranking: cost models learn from slow candidates
        too.
    `errors`: number of failures to keep, newest first.
    Raises `LogError` if the log does not exist, or cannot be read or written. Raises `ValueError` if a number
    is negative.
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
    """Return the winners that ship with hbtvm, which are worth trying first."""
    return list(_winners())


@functools.cache
def _winners() -> tuple[Record, ...]:
    # Parsing them takes as long as compiling a small model.
    return tuple(_packaged(".jsonl", bytes))


def contrast() -> list[Record]:
    """Return the records of random candidates that ship with hbtvm, from which cost models learn.

    Each is marked (`drawn`): the fastest of a few random candidates is not worth trying first.
    """
    return _packaged(".jsonl.xz", lzma.decompress)


def drawn(record: Record) -> bool:
    """Return whether a record's candidate was drawn at random, not by a search."""
    return bool(record.extra.get(DRAWN))


def _packaged(suffix: str, unpacked: Callable[[bytes], bytes]) -> list[Record]:
    """Return the records of the packaged files with this suffix, in the order of file names."""
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
    """Return a sort key for a date: the zone is always UTC, the fraction optional."""
    return date.removesuffix("Z").removesuffix("+00:00")


def _spread(records: list[Record], count: int) -> list[Record]:
    if count >= len(records):
        return records
    return [records[(2 * i + 1) * len(records) // (2 * count)] for i in range(count)]
