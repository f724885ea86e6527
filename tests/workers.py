"""Worker processes that searches of several tests share: each start imports TVM, which takes seconds.

The fixture `shared_workers` applies them to a test or a module of tests.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
from typing import Any

from hbtvm.tuning.measuring.worker_process import Limits, Worker

_MOST = 6
"""Idle workers of this process that wait for the next search."""

_idle: list[SharedWorker] = []


class SharedWorker(Worker):
    """A worker that waits for the next search when its pool is closed, unless a job or its death ends it."""

    def __init__(self, limits: Limits, module: str) -> None:
        self.key = _key(limits, module)  # what a search that takes this worker must agree in
        # On Linux, workers die with the thread that created them.
        self._stays = threading.current_thread() is threading.main_thread()
        super().__init__(limits, module)

    @property
    def alive(self) -> bool:
        """Whether its process runs."""
        return self._process.poll() is None

    def close(self) -> None:
        """Keep the process for the next search if it is idle; else kill it."""
        if self.busy or not self._stays or not self.alive:
            super().close()
            return
        _idle.append(self)
        while len(_idle) > _MOST:
            Worker.close(_idle.pop(0))

    def resume(self) -> SharedWorker:
        """Serve another pool."""
        self._deadline = time.monotonic() + self._limits.start
        return self


@atexit.register
def _end() -> None:
    """Kill the workers that wait."""
    while _idle:
        Worker.close(_idle.pop())


def worker(limits: Limits, module: str) -> Worker:
    """Return an idle worker that was started alike, or a new one."""
    key = _key(limits, module)
    for waiting in [waiting for waiting in _idle if waiting.key == key]:
        _idle.remove(waiting)
        if waiting.alive:
            return waiting.resume()
        Worker.close(waiting)
    return SharedWorker(limits, module)


def _key(limits: Limits, module: str) -> Any:
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    cpus = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    return limits, module, [entry or os.getcwd() for entry in sys.path], environment, cpus
