"""Limit numerical libraries to one thread while cost models are fitted and used.

BLAS and OpenMP start a thread per CPU, and waiting threads spin. A search's models are too small to gain from
a second thread on an idle machine, and lose on a busy one: with 14 runnable processes on two CPUs, planning
200 trials took 138 s (27 s of processor time), against 4.5 s (1.0 s) on one thread.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from threadpoolctl import ThreadpoolController

_lock = threading.Lock()
_users = 0
_found: tuple[int, ThreadpoolController] | None = None
"""The process's numerical libraries, and the number of modules loaded when they were looked up."""


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit BLAS and OpenMP of this process to one thread within a ``with`` block.

    Blocks may nest, and overlap between threads: the first block sets and restores the process-wide limit of
    BLAS; OpenMP's limit is per thread. Libraries loaded inside a block are limited from the next block on.
    """
    global _users
    with _lock:
        limited = _controller().limit(limits=1, user_api="openmp" if _users else None)
        _users += 1
    try:
        yield
    finally:
        with _lock:
            limited.restore_original_limits()
            _users -= 1


def _controller() -> ThreadpoolController:
    """Return the controller of the loaded libraries, looked up again if modules were imported since.

    The lookup runs callbacks from C, which lose a `KeyboardInterrupt`; so another thread makes it.
    """
    global _found
    modules = len(sys.modules)
    if _found is None or _found[0] != modules:
        with ThreadPoolExecutor(1) as executor:
            _found = modules, executor.submit(ThreadpoolController).result()
    return _found[1]
