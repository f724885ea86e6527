"""`ThreadPool`: a model's threads, independent of other pools and of environment variables."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue

from hbtvm import checks


def threads_of(tuned: int, threads: int | None) -> int:
    """Return the most threads of a model's calls; by default those that it was tuned for, if there are."""
    if threads is None:
        return max(1, min(tuned, len(os.sched_getaffinity(0))))
    return checks.whole("threads", threads, 1, 2, checks.MOST_THREADS)


class ThreadPool:
    """Threads that share the work of one call; the calling thread is one of them.

    Helpers start at the first call that needs them, end with the pool, and start anew in a forked child
    (threads do not survive a fork). Several threads may call `run` at once.

    `threads`: most threads of a call, the caller included.
    """

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self._queue: SimpleQueue[_Job | None] | None = None
        self._lock = threading.Lock()
        _pools.add(self)

    def run(self, work: Callable[[int], None], count: int, threads: int | None = None) -> None:
        """Call ``work(0)`` to ``work(count - 1)``, each once, and return when all are done.

        `threads`: most threads of this call; by default, the pool's.
        Raises the first error of `work`; calls that had not begun by then are skipped.
        """
        helpers = min(threads or self.threads, self.threads, count) - 1
        if helpers < 1:
            for i in range(count):
                work(i)
            return
        queue = self._queue or self._start()
        job = _Job(work, count)
        for _ in range(helpers):
            queue.put(job)
        job.help()
        job.wait()

    def _start(self) -> SimpleQueue[_Job | None]:
        with self._lock:
            if self._queue is None:
                queue: SimpleQueue[_Job | None] = SimpleQueue()
                for _ in range(self.threads - 1):
                    # Helpers refer to the queue only, so the pool can be collected while they wait.
                    threading.Thread(target=_serve, args=(queue,), name="hbtvm", daemon=True).start()
                weakref.finalize(self, _stop, queue, self.threads - 1)
                self._queue = queue
            return self._queue

    def _forget(self) -> None:
        self._queue = None
        self._lock = threading.Lock()


class _Job:
    """The work of a call, from which threads take pieces in turn."""

    __slots__ = ("count", "done", "error", "left", "lock", "next", "work")

    def __init__(self, work: Callable[[int], None], count: int) -> None:
        self.work = work
        self.count = self.left = count
        self.next = 0
        self.error: BaseException | None = None
        self.lock = threading.Lock()
        self.done = threading.Lock()
        self.done.acquire()

    def help(self) -> None:
        """Run pieces until none is left to begin."""
        while True:
            with self.lock:
                if self.next == self.count:
                    return
                i = self.next
                self.next += 1
            error: BaseException | None = None
            try:
                self.work(i)
            except BaseException as raised:
                error = raised
            with self.lock:
                self.left -= 1
                if error is not None:
                    self.error = self.error or error
                    self.left -= self.count - self.next
                    self.next = self.count
                if self.left == 0:
                    self.done.release()

    def wait(self) -> None:
        """Wait for other threads' pieces; raise the first error."""
        self.done.acquire()
        if self.error is not None:
            raise self.error


def _serve(queue: SimpleQueue[_Job | None]) -> None:
    while True:
        job = queue.get()
        if job is None:
            return
        job.help()
        # Drop the reference while waiting for the next job: a job holds the caller's arrays.
        del job


def _stop(queue: SimpleQueue[_Job | None], helpers: int) -> None:
    for _ in range(helpers):
        queue.put(None)


_pools: weakref.WeakSet[ThreadPool] = weakref.WeakSet()


def _after_fork() -> None:
    for pool in list(_pools):
        pool._forget()


os.register_at_fork(after_in_child=_after_fork)
