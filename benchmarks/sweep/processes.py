"""Classes in processes of their own, which may crash or take too long without ending the sweep."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from benchmarks.sweep.compare import WRONG
from benchmarks.sweep.run import Outcome, sweep_class

Task = tuple[str, int]
"""Class and seed."""


@dataclass
class _Running:
    task: Task
    process: BaseProcess
    until: float
    outcomes: list[Outcome] = field(default_factory=list)


Sweep = Callable[[str, int, int, str], Iterator[Outcome]]
"""Sweeps a class: name, seed, limit, only."""


def run(
    tasks: list[Task],
    jobs: int,
    limit: int,
    only: str,
    seconds: float,
    sweep: Sweep = sweep_class,
    preload: tuple[str, ...] = ("benchmarks.sweep.run", "hbtvm.api"),
) -> Iterator[list[Outcome]]:
    """Yield the outcomes of each class and seed when its process has ended.

    Parameters
    ----------
    jobs
        Processes at a time.
    limit, only
        See `benchmarks.sweep.run.sweep_class`.
    seconds
        That a process may take; one that takes longer is killed, and the setting counts as wrong.
    sweep
        Yields the outcomes of a class; a function of a module.
    preload
        Modules that the process imports from which the others are forked. It has no threads.
    """
    context: Any = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(preload))
    waiting = list(reversed(tasks))
    running: dict[Connection, _Running] = {}
    while waiting or running:
        while waiting and len(running) < jobs:
            task = waiting.pop()
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_work, args=(sweep, theirs, task, limit, only))
            process.start()
            theirs.close()
            running[ours] = _Running(task, process, time.monotonic() + seconds)
        for ready in wait(list(running), timeout=1.0):
            assert isinstance(ready, Connection)
            one = running[ready]
            try:
                one.outcomes.append(ready.recv())
            except (EOFError, OSError):
                one.process.join(max(0.0, one.until - time.monotonic()))
                if one.process.exitcode is not None:
                    del running[ready]
                    yield _ended(one, f"the process ended with status {one.process.exitcode}")
        for connection, one in list(running.items()):
            if time.monotonic() > one.until:
                one.process.kill()
                one.process.join()
                del running[connection]
                yield _ended(one, f"not done after {seconds:.0f} s", done=False)


def _ended(one: _Running, why: str, done: bool = True) -> list[Outcome]:
    """The outcomes of a process, with one more where it did not end well."""
    if not done or one.process.exitcode:
        broken = Outcome(*one.task, f"after {len(one.outcomes)} settings")
        broken.add(WRONG, "process", "", f"crash: {why}")
        one.outcomes.append(broken)
    return one.outcomes


def _work(sweep: Sweep, connection: Connection, task: Task, limit: int, only: str) -> None:
    for outcome in sweep(*task, limit, only):
        connection.send(outcome)
    connection.close()
