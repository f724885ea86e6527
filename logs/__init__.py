"""Tuning logs: the schema of records, their storage, and queries."""

from hbtvm.logs.bounds import RecordError
from hbtvm.logs.query import (
    MergeResult,
    PruneResult,
    Stats,
    best,
    contrast,
    merge,
    prune,
    shipped,
    stats,
)
from hbtvm.logs.ranking import ranking
from hbtvm.logs.record import VERSION, Record, canonical
from hbtvm.logs.store import Log, LogError, ReadResult
from hbtvm.logs.targets import target_key

__all__ = [
    "VERSION",
    "Log",
    "LogError",
    "MergeResult",
    "PruneResult",
    "ReadResult",
    "Record",
    "RecordError",
    "Stats",
    "best",
    "canonical",
    "contrast",
    "merge",
    "prune",
    "ranking",
    "shipped",
    "stats",
    "target_key",
]
