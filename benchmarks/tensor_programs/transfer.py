"""Trials to the same speed, with and without records of C1 to C6 (AutoTVM, figure 9)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.tensor_programs.compare import task_of
from benchmarks.tensor_programs.workloads import WORKLOADS, Workload
from hbtvm import tuning
from hbtvm.logs.record import Record
from hbtvm.logs.store import Log

SOURCES = ("C1", "C2", "C3", "C4", "C5", "C6")
GOALS = ("C7", "C8", "C9", "Matmul-1024")

_WITHIN = 1.02  # the speed counts as reached within 2 percent


def readings(history: list[Record]) -> list[Record]:
    """Return the records of a search without its final."""
    return [record for record in history if "final" not in record.extra]


def reached(history: list[Record], seconds: float) -> int | None:
    """Return the number of trials until a time is reached; None if it is not."""
    times = (record.cost for record in readings(history))
    return next((n + 1 for n, cost in enumerate(times) if cost <= _WITHIN * seconds), None)


def study(goal: Workload, folder: Path, threads: int, trials: int, seed: int) -> dict[str, Any]:
    """Search a workload with and without transfer; return the trials to the best of the search without."""
    sources = folder / f"sources-{threads}.jsonl"
    if not sources.exists():
        own = [r for name in SOURCES for r in Log(folder / f"{name}-{threads}.jsonl").read().records]
        for record in readings(own):
            Log(sources).append(record)
    task = task_of(goal, threads)
    histories = {}
    for name, transfer in (("without", False), ("with", [sources])):
        log = Log(folder / f"transfer-{name}-{goal.name}-{threads}-{seed}.jsonl")
        tuning.search(task, trials=trials, log=log, seed=seed, transfer=transfer)
        histories[name] = log.read().records
    best = min(record.cost for record in readings(histories["without"]))
    return {
        "workload": goal.name,
        "threads": threads,
        "seed": seed,
        "seconds": best,
        **{name: reached(history, best) for name, history in histories.items()},
    }


def goals() -> list[Workload]:
    """Return the workloads to transfer to."""
    return [WORKLOADS[name] for name in GOALS]
