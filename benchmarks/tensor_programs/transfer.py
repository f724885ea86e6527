"""Trials to the same speed, with and without records of C1 to C6 (AutoTVM, figure 9)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from benchmarks.common import side_by_side
from benchmarks.tensor_programs.compare import TURN, TURNS, bound, task_of
from benchmarks.tensor_programs.workloads import WORKLOADS, Workload
from hbtvm import tuning
from hbtvm.logs.record import Record
from hbtvm.logs.store import Log
from hbtvm.programs.computation import samples

SOURCES = ("C1", "C2", "C3", "C4", "C5", "C6")
GOALS = ("C7", "C8", "C9", "Matmul-1024")

WITHIN = (2, 10)  # percent of the best within which it counts as reached

_PROMISING, _MOST = 1.5, 40  # readings of candidates to time again, over the fastest; and most of them


def readings(history: list[Record]) -> list[Record]:
    """Return the records of a search without its final."""
    return [record for record in history if "final" not in record.extra]


def reached(seconds: Sequence[float | None], goal: float, within: float) -> int | None:
    """Return the number of trials until a time is reached; None if it is not.

    `seconds`: by trial; None for candidates that were not timed.
    """
    fast = (n + 1 for n, time in enumerate(seconds) if time is not None and time <= within * goal)
    return next(fast, None)


def in_turns(workload: Workload, threads: int, records: Sequence[Record]) -> dict[str, float]:
    """Time the promising candidates of several searches in turns; return median seconds by `key`.

    Readings of two searches differ by more than they are to show, since other processes run meanwhile.
    """
    task = task_of(workload, threads)
    best = min(record.cost for record in records)
    near = sorted((r for r in records if r.cost <= _PROMISING * best), key=lambda record: record.cost)
    arrays = samples(task.definition.module)
    calls: dict[str, Callable[[], Any]] = {}
    for record in near:
        if key(record) not in calls and len(calls) < _MOST:
            candidate = tuning.built(task, record.strategy, dict(record.config))
            calls[key(record)] = bound(candidate.function, candidate.pack(*arrays))
    clock = time.thread_time if threads == 1 else time.perf_counter
    return side_by_side(calls, seconds=TURN * TURNS, rounds=TURNS, clock=clock)


def key(record: Record) -> str:
    """Return a text that tells a candidate apart."""
    return record.strategy + json.dumps(record.config, sort_keys=True)


def study(goal: Workload, folder: Path, threads: int, trials: int, seed: int) -> dict[str, Any]:
    """Search a workload with and without transfer; return the trials to the best of the search without.

    The promising candidates of both are timed in turns.
    """
    sources = folder / f"sources-{threads}.jsonl"
    if not sources.exists():
        own = [r for name in SOURCES for r in Log(folder / f"{name}-{threads}.jsonl").read().records]
        for record in readings(own):
            Log(sources).append(record)
    task = task_of(goal, threads)
    found: dict[str, list[Record]] = {}
    for name, transfer in (("without", False), ("with", [sources])):
        log = Log(folder / f"transfer-{name}-{goal.name}-{threads}-{seed}.jsonl")
        tuning.search(task, trials=trials, log=log, seed=seed, transfer=transfer)
        found[name] = readings(log.read().records)
    times = in_turns(goal, threads, [record for history in found.values() for record in history])
    seconds = {name: [times.get(key(record)) for record in history] for name, history in found.items()}
    best = min(time for time in seconds["without"] if time is not None)
    row: dict[str, Any] = {"workload": goal.name, "threads": threads, "seed": seed, "seconds": best}
    for percent in WITHIN:
        for name, known in seconds.items():
            row[f"{name} {percent}%"] = reached(known, best, 1 + percent / 100)
    return {**row, "best with": min((time for time in seconds["with"] if time is not None), default=None)}


def goals() -> list[Workload]:
    """Return the workloads to transfer to."""
    return [WORKLOADS[name] for name in GOALS]
