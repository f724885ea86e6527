"""Tuning logs: what a record says, how it is kept, and what is read off many of them."""

from logs.query import (
    MergeResult,
    PruneResult,
    Stats,
    best,
    merge,
    prune,
    shipped,
    stats,
)
from logs.record import VERSION, Record, RecordError, canonical
from logs.store import Log, LogError, ReadResult
from logs.targets import target_key

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
    "merge",
    "prune",
    "shipped",
    "stats",
    "target_key",
]
