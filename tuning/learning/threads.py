"""Threads of numerical libraries while cost models are fitted and asked.

BLAS and OpenMP start as many threads as there are CPUs, and those that wait for the others spin. A search's
models are small (at most some hundred records, or some thousand for boosted trees), so that a second thread
gains next to nothing on an idle machine. On a busy one it costs dearly: with 14 runnable processes on two
CPUs, planning 200 trials took 138 s and 27 s of processor time, against 4.5 s and 1.0 s on one thread.
What else runs is not known before a fit, so they always get one.
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
"""The numerical libraries of this process, and how many modules were loaded when they were looked for."""


@contextmanager
def one_thread() -> Iterator[None]:
    """Hold BLAS and OpenMP, of all this process, to one thread for the length of a ``with`` block.

    Blocks may be nested, and overlap between threads: BLAS, whose limit is the process's, is held and given
    back by the first; OpenMP's limit is each thread's own. Libraries that are loaded inside a block are held
    from the next one on.
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
    """What limits the libraries that are loaded now.

    Looking for them calls back from C for each, and an exception in such a call is lost: in the main thread,
    that would be the `KeyboardInterrupt` of a Ctrl-C that comes meanwhile. So another thread looks, and
    only when modules were imported since.
    """
    global _found
    modules = len(sys.modules)
    if _found is None or _found[0] != modules:
        with ThreadPoolExecutor(1) as executor:
            _found = modules, executor.submit(ThreadpoolController).result()
    return _found[1]
