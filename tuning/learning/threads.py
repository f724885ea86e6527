"""Threads of numerical libraries while cost models are fitted and asked.

BLAS and OpenMP start as many threads as there are CPUs, and those that wait for the others spin. A search's
models are small (at most some hundred records, or some thousand for boosted trees), so that a second thread
gains next to nothing on an idle machine. On a busy one it costs dearly: with 14 runnable processes on two
CPUs, planning 200 trials took 138 s and 27 s of processor time, against 4.5 s and 1.0 s on one thread.
What else runs is not known before a fit, so they always get one.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from threadpoolctl import ThreadpoolController

_lock = threading.Lock()
_users = 0


@contextmanager
def one_thread() -> Iterator[None]:
    """Hold BLAS and OpenMP, of all this process, to one thread for the length of a ``with`` block.

    Blocks may be nested, and overlap between threads: BLAS, whose limit is the process's, is held and given
    back by the first; OpenMP's limit is each thread's own. Libraries that are loaded inside a block are held
    from the next one on.
    """
    global _users
    with _lock:
        first = _users == 0
        _users += 1
        # Made anew each time, since libraries are loaded when a model first needs them.
        limited = ThreadpoolController().limit(limits=1, user_api=None if first else "openmp")
    try:
        yield
    finally:
        with _lock:
            limited.restore_original_limits()
            _users -= 1
