"""Trials to the same speed, with and without records of C1 to C6 (AutoTVM, figure 8).

AutoTVM's searches begin with random candidates, as do searches of spaces without initial configurations.
Default spaces have initial configurations, which are mostly within 10% of the best.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
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
GOALS = ("C7", "C8", "C9", "C10", "C11", "C12", "Matmul-1024")

WITHIN = (2, 5, 10)  # percent of the best within which it counts as reached

FIRST = ("random", "default")  # the first candidates of searches: random, or those of the default space

_PROMISING = 1.3  # largest reading of candidates to time again, over the slowest search's fastest


def readings(history: list[Record]) -> list[Record]:
    """Return the records of a search without its final."""
    return [record for record in history if "final" not in record.extra]


def reached(seconds: Sequence[float | None], goal: float, within: float) -> int | None:
    """Return the number of trials until a time is reached; None if it is not.

    `seconds`: by trial; None for candidates that were not timed.
    """
    fast = (n + 1 for n, time in enumerate(seconds) if time is not None and time <= within * goal)
    return next(fast, None)


def in_turns(workload: Workload, threads: int, histories: Sequence[Sequence[Record]]) -> dict[str, float]:
    """Time the promising candidates of several searches in turns; return median seconds by `key`.

    Readings of two searches differ by more than they are to show, since other processes run meanwhile.
    """
    task = task_of(workload, threads)
    slowest = max(min(record.cost for record in history) for history in histories)
    known = [record for history in histories for record in history]
    near = sorted((r for r in known if r.cost <= _PROMISING * slowest), key=lambda record: record.cost)
    arrays = samples(task.definition.module)
    calls: dict[str, Callable[[], Any]] = {}
    for record in near:
        if key(record) not in calls:
            candidate = tuning.built(task, record.strategy, dict(record.config))
            calls[key(record)] = bound(candidate.function, candidate.pack(*arrays))
    clock = time.thread_time if threads == 1 else time.perf_counter
    return side_by_side(calls, seconds=TURN * TURNS, rounds=TURNS, clock=clock)


def key(record: Record) -> str:
    """Return a text that tells a candidate apart."""
    return record.strategy + json.dumps(record.config, sort_keys=True)


def task_from(workload: Workload, threads: int, first: str) -> tuning.TensorTask:
    """Return a task whose searches begin with one of `FIRST`."""
    task = task_of(workload, threads)
    if first == "default":
        return task
    bare = {name: replace(strategy, initial=()) for name, strategy in task.strategies.items()}
    return replace(task, strategies=bare)


def sources(folder: Path, threads: int, trials: int, first: str) -> Path:
    """Return a log with the records of `SOURCES`, which are searched where they were not."""
    kept = folder / f"sources-{first}-{threads}.jsonl"
    if not kept.exists():
        records: list[Record] = []
        for name in SOURCES:
            log = Log(folder / f"source-{first}-{name}-{threads}.jsonl")
            tuning.search(task_from(WORKLOADS[name], threads, first), trials=trials, log=log, transfer=False)
            records += readings(log.read().records)
        Log(kept).replace(records)
    return kept


def study(
    goal: Workload, folder: Path, threads: int, trials: int, seed: int, first: str = "random"
) -> dict[str, Any]:
    """Search a workload with and without transfer; return the trials to the best of the search without.

    The promising candidates of both are timed in turns.
    """
    known = sources(folder, threads, trials, first)
    task = task_from(goal, threads, first)
    found: dict[str, list[Record]] = {}
    for name, transfer in (("without", False), ("with", [known])):
        log = Log(folder / f"transfer-{first}-{name}-{goal.name}-{threads}-{seed}.jsonl")
        tuning.search(task, trials=trials, log=log, seed=seed, transfer=transfer)
        found[name] = readings(log.read().records)
    times = in_turns(goal, threads, list(found.values()))
    seconds = {name: [times.get(key(record)) for record in history] for name, history in found.items()}
    bests = {name: min(time for time in own if time is not None) for name, own in seconds.items()}
    row: dict[str, Any] = {"workload": goal.name, "threads": threads, "seed": seed, "first": first}
    row |= {"trials": trials, "best": bests}
    for percent in WITHIN:
        for name, own in seconds.items():
            row[f"{name} {percent}%"] = reached(own, bests["without"], 1 + percent / 100)
    return row


def goals() -> list[Workload]:
    """Return the workloads to transfer to."""
    return [WORKLOADS[name] for name in GOALS]
