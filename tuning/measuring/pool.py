"""Build candidates in parallel and measure them one at a time, in worker processes that may crash."""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import wait

from hbtvm.tuning.measuring.machine import BuiltLibrary, Machine
from hbtvm.tuning.measuring.messages import (
    BuildJob,
    Built,
    Candidate,
    Failure,
    Measured,
    MeasureJob,
    Reply,
    Timing,
)
from hbtvm.tuning.measuring.program import OBJECT
from hbtvm.tuning.measuring.scratch import Scratch
from hbtvm.tuning.measuring.worker_process import Limits, Worker

_GLANCE = 0.25  # seconds between looks at a busy worker's memory


@dataclass(frozen=True)
class PoolOptions:
    """Processes of a pool."""

    # Processes that compile in parallel; by default, as many as CPUs that this process may use
    builders: int = field(default_factory=lambda: _cores())
    limits: Limits = field(default_factory=Limits)  # limits of each process
    measures: bool = True  # whether to start a process that measures


class Pool(Machine):
    """Worker processes on this machine, which start in the background.

    Builders are separate processes, so that a build's memory and threads cannot disturb a measurement.

    `programs`: names of the programs; workers import the first program's module ahead.
    `options`: number and limits of the workers.
    """

    def __init__(self, programs: Sequence[str] = (), options: PoolOptions | None = None) -> None:
        options = options or PoolOptions()
        module = programs[0].partition(":")[0] if programs else ""
        self._folder = Scratch("tuning-")
        self._count = 0
        self._builders = [Worker(options.limits, module) for _ in range(options.builders)]
        self._runners = [Worker(options.limits, module)] if options.measures else []

    @property
    def builders(self) -> int:
        """Processes that compile in parallel."""
        return len(self._builders)

    def build(self, candidates: Sequence[Candidate], until: float) -> list[BuiltLibrary | Failure | None]:
        results: list[BuiltLibrary | Failure | None] = [None] * len(candidates)
        waiting = deque(range(len(candidates)))
        at_work: dict[int, tuple[Worker, BuildJob]] = {}
        try:
            while at_work or waiting:
                if time.monotonic() >= until:
                    waiting.clear()
                for worker in self._builders:
                    if waiting and not worker.busy:
                        index = waiting.popleft()
                        job = BuildJob(candidates[index], self._new_path())
                        worker.submit(job)
                        at_work[index] = worker, job
                self._wait([worker for worker, _ in at_work.values()])
                for index, (worker, job) in list(at_work.items()):
                    reply = worker.poll()
                    if reply is not None:
                        del at_work[index]
                        results[index] = _library(job, reply)
        except BaseException:
            for worker, _ in at_work.values():
                worker.kill()
            raise
        return results

    def measure(self, candidate: Candidate, library: BuiltLibrary, timing: Timing) -> Measured | Failure:
        self._settle()
        (worker,) = self._runners
        try:
            worker.submit(MeasureJob(candidate, library.path, timing))
            while (reply := worker.poll()) is None:
                self._wait([worker])
        except BaseException:
            worker.kill()
            raise
        assert not isinstance(reply, Built)
        return reply

    def discard(self, library: BuiltLibrary) -> None:
        """Delete a library and its object."""
        for path in (library.path, library.path + OBJECT):
            with contextlib.suppress(FileNotFoundError):
                os.remove(path)

    def close(self) -> None:
        """Kill the workers and delete all libraries."""
        for worker in (*self._builders, *self._runners):
            worker.close()
        self._folder.close()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _settle(self) -> None:
        """Wait for starting workers: importing a compiler would disturb a measurement."""
        workers = (*self._builders, *self._runners)
        while starting := [worker for worker in workers if worker.starting]:
            self._wait(starting)
            for worker in starting:
                worker.poll()

    def _wait(self, workers: Sequence[Worker]) -> None:
        """Sleep until a worker may have replied."""
        patience = min((worker.remaining for worker in workers), default=0.0)
        wait([worker.connection for worker in workers], min(patience, _GLANCE))

    def _new_path(self) -> str:
        self._count += 1
        return str(self._folder.path / f"{self._count}.so")


def _library(job: BuildJob, reply: Reply) -> BuiltLibrary | Failure:
    assert not isinstance(reply, Measured)
    if isinstance(reply, Failure):
        return reply
    if not os.path.exists(job.library):
        return Failure("build", "the program wrote no library")
    return BuiltLibrary(job.library, reply.fingerprint, reply.seconds)


def _cores() -> int:
    """CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
