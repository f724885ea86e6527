"""Search each model and batch size, then measure today's default against the fastest known, in turns."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.search.regret.models import MODELS
from hbtvm.compiler.assemble import stamp
from hbtvm.compiler.candidates.prepared import prepare
from hbtvm.compiler.candidates.program import TreeProgram
from hbtvm.compiler.candidates.tasks import describe
from hbtvm.compiler.pieces import pieces_of
from hbtvm.logs.record import canonical
from hbtvm.logs.store import Log
from hbtvm.run import graph_for
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import Target
from hbtvm.tuning.final import FinalOptions
from hbtvm.tuning.measuring.messages import Timing
from hbtvm.tuning.measuring.pool import Pool, PoolOptions
from hbtvm.tuning.measuring.program import Runnable
from hbtvm.tuning.result import Entry, GroupResult
from hbtvm.tuning.session import tune
from hbtvm.tuning.settings import Settings
from hbtvm.tuning.task import Task

PROGRAM = "benchmarks.search.regret.measure:ThreadTime"
CELLS = "cells.jsonl"  # the file of results
_FINAL = FinalOptions(finalists=4, rounds=11)


class ThreadTime(TreeProgram):
    """Kernels of one thread, timed by its processor time: other processes take turns, but add nothing."""

    def load(self, config: Config, library_path: str) -> Any:
        """Load a candidate; see `TreeProgram.load`."""
        return _Timed(super().load(config, library_path))


class _Kept(Pool):
    """Workers that serve several searches: starting them takes longer than a dozen trials."""

    def __init__(self) -> None:
        super().__init__([PROGRAM], PoolOptions(builders=1))

    def close(self) -> None:
        """Keep the workers."""

    def end(self) -> None:
        """End the workers."""
        super().close()


class _Timed:
    def __init__(self, kernel: Runnable) -> None:
        self._kernel = kernel

    def check(self) -> str | None:
        return self._kernel.check()

    def run(self, number: int) -> float:
        start = time.thread_time()
        self._kernel.run(number)
        return time.thread_time() - start


def log_of(folder: Path, model: str, rows: int) -> Log:
    """Return the log of a model and batch size."""
    name = re.sub(r"[^a-z0-9]+", "-", model.lower()).strip("-")
    return Log(folder / f"{name}-{rows}.jsonl")


def measure(folder: Path, target: Target, names: Sequence[str], sizes: Sequence[int], trials: int) -> None:
    """Measure what is lacking, and every default that changed; prints a line for each model and size.

    `folder`: keeps a log for each model and size, and `cells.jsonl` with the result of each final.
    `trials`: candidates to try for each model and size, those in its log included.
    """
    folder.mkdir(parents=True, exist_ok=True)
    machine = _Kept()
    try:
        for name in names:
            with _tasks(name, target, sizes) as tasks:
                for rows in sizes:
                    group = [task for task in tasks if task.workload["rows"] == rows]
                    cell = _cell(name, rows, group, folder, trials, machine)
                    if cell is not None:
                        with (folder / CELLS).open("a") as file:
                            file.write(json.dumps(cell) + "\n")
                        ratio = cell["default"]["seconds"] / cell["best"]["seconds"]
                        print(f"{name}, {rows:,} rows: {ratio:.3f}", flush=True)
    finally:
        machine.end()


def read_cells(folder: Path) -> dict[tuple[str, int], dict[str, Any]]:
    """Return the last result of each model and batch size."""
    path = folder / CELLS
    lines = path.read_text().splitlines() if path.exists() else []
    return {(cell["model"], cell["rows"]): cell for cell in map(json.loads, lines)}


def _cell(
    name: str, rows: int, tasks: Sequence[Task], folder: Path, trials: int, machine: _Kept
) -> dict[str, Any] | None:
    """Search, and hold the final; None if nothing is new."""
    log = log_of(folder, name, rows)
    tried = {(record.strategy, canonical(record.config)) for record in log.read().records}
    default = tasks[0].strategy, canonical(tasks[0].initial[0])
    last = read_cells(folder).get((name, rows), {}).get("default")
    if len(tried) >= trials and last and default == (last["strategy"], canonical(last["config"])):
        return None
    settings = Settings(
        trials=max(trials, len(tried) + (default not in tried)),
        log=log,
        describe=describe,
        timing=Timing(min_repeat=0.01),
        final=_FINAL,
        stamp=stamp(),
    )
    result = tune(tasks, settings, machine)
    if result.interrupted:
        raise KeyboardInterrupt
    if result.log_error is not None:
        raise result.log_error
    (group,) = result.groups.values()
    return {"model": name, "rows": rows, "trials": group.trials, **_sides(group)}


def _sides(group: GroupResult) -> dict[str, Any]:
    assert group.best is not None and group.default is not None
    return {"default": _side(group.default), "best": _side(group.best)}


def _side(entry: Entry) -> dict[str, Any]:
    return {"strategy": entry.task.strategy, "config": entry.config, "seconds": entry.time}


@contextmanager
def _tasks(name: str, target: Target, sizes: Sequence[int]) -> Iterator[list[Task]]:
    """The tasks of a model's largest piece, for the length of a ``with`` block."""
    graph = graph_for(target, MODELS[name](), "float32", None)
    pieces = pieces_of(graph, "float32", None, target)
    with TemporaryDirectory(prefix="regret-") as folder:
        ready = prepare(pieces[-1:], target, sizes, 1, Path(folder))
        yield [replace(task, program=PROGRAM) for task in ready.tasks]
