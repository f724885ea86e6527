"""The process that starts the processes of a service, and replaces those that end.

It loads no models. Its children inherit the listening socket, so that no connection is lost while a child is
replaced, and end if it dies.
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import signal
import socket
import time
from dataclasses import dataclass
from typing import Any

_log = logging.getLogger(__name__)

_TICK = 0.05  # seconds between looks at children and signals
_LATE = 5.0  # seconds beyond the grace period after which children are killed
_LONGEST = 30.0  # maximal seconds before a process that does not start is tried again
_PR_SET_PDEATHSIG = 1  # of prctl(2): the signal that a process gets when its parent ends
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@dataclass
class _Child:
    """A place for a process.

    `pid`: 0 if it does not run.
    `pipe`: file descriptor on which it reports that it serves; -1 afterwards.
    `failures`: starts in a row that failed.
    `due`: time of the next start.
    """

    pid: int = 0
    pipe: int = -1
    failures: int = 0
    due: float = 0.0


class Supervisor:
    """Starts and watches processes.

    `count`: number of processes.
    `listening`: the socket that they inherit.
    `grace`: seconds for open requests to finish after a signal to stop.
    `status`: exit status of the supervisor.
    `first`: in a child, whether it is the service's first process.
    """

    def __init__(self, count: int, listening: socket.socket, grace: float) -> None:
        self._children = [_Child() for _ in range(count)]
        self._listening, self._grace = listening, grace
        self.status, self.first = 0, True
        self._report = -1
        self._stops: list[int] = []
        self._served = self._told = self._reload = False
        self._before: dict[int, Any] = {}

    def run(self) -> int | None:
        """Watch the processes until a signal stops them; return None.

        Each child returns from this function with its number.
        """
        self._before = {number: signal.signal(number, self._note) for number in _SIGNALS}
        try:
            return self._watch()
        finally:
            for number, handler in self._before.items():
                signal.signal(number, handler)

    def ready(self) -> None:
        """Report, in a child, that it serves."""
        os.write(self._report, b"1")
        os.close(self._report)

    def _watch(self) -> int | None:
        asked, end = 0, 0.0
        while True:
            failed = self._reap()
            if failed is not None and not self._told and not self._stops:
                self.status = failed
                self._stops.append(signal.SIGTERM)
            for child in self._children:
                self._hear(child)
            if len(self._stops) > asked:
                self._listening.close()
                self._tell(signal.SIGTERM if not asked else signal.SIGUSR1)
                end = end or time.monotonic() + self._grace + _LATE
                asked = len(self._stops)
            if asked:
                if not any(child.pid for child in self._children):
                    if not self._served and not self.status:
                        self.status = 128 + self._stops[0]
                    return None
                if time.monotonic() > end:
                    self._tell(signal.SIGKILL)
            else:
                # The first process shows whether the models load; the others start after it.
                served = self._told or _serves(self._children[0])
                for number, child in enumerate(self._children):
                    due = not child.pid and time.monotonic() >= child.due and (served or not number)
                    if due and self._start(child, first=not self._told and not number):
                        return number
                if not self._told and all(map(_serves, self._children)):
                    self._told = True
                    pids = ", ".join(str(child.pid) for child in self._children)
                    _log.info("%d processes serve: %s", len(self._children), pids)
                if self._reload:
                    self._reload = False
                    self._tell(signal.SIGHUP, only_serving=True)
            time.sleep(_TICK)

    def _start(self, child: _Child, first: bool) -> bool:
        """Start a process; return whether this is it."""
        heard, report = os.pipe()
        os.set_blocking(heard, False)
        supervisor = os.getpid()
        # A signal that arrives here must not run the supervisor's handler in the child.
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        pid = os.fork()
        if pid:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            os.close(report)
            child.pid, child.pipe = pid, heard
            return False
        for number, handler in self._before.items():
            signal.signal(number, handler)
        _end_with_parent(supervisor)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
        for descriptor in (heard, *(other.pipe for other in self._children if other.pipe >= 0)):
            os.close(descriptor)
        self._report, self.first = report, first
        return True

    def _reap(self) -> int | None:
        """Note which processes have ended; return the status of a process that never served."""
        failed = None
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, wait_status = os.waitpid(-1, os.WNOHANG)
                if not pid:
                    break
                child = next((child for child in self._children if child.pid == pid), None)
                if child is None:  # an orphan that a container's first process inherits
                    continue
                self._hear(child)
                code = os.waitstatus_to_exitcode(wait_status)
                how = f"signal {-code}" if code < 0 else f"status {code}"
                child.pid, served = 0, child.pipe < 0
                if not served:
                    os.close(child.pipe)
                    child.pipe, failed = -1, code if code > 0 else 1
                child.failures = 0 if served else child.failures + 1
                delay = 0.0 if served else min(_LONGEST, 2.0 ** (child.failures - 1))
                child.due = time.monotonic() + delay
                if not self._stops and (self._told or served):
                    _log.error("process %d ended with %s; starting another in %g s", pid, how, delay)
        return failed

    def _hear(self, child: _Child) -> None:
        """Note that a process serves."""
        if child.pipe >= 0:
            with contextlib.suppress(BlockingIOError):
                if os.read(child.pipe, 1):
                    os.close(child.pipe)
                    child.pipe, self._served = -1, True

    def _tell(self, number: int, only_serving: bool = False) -> None:
        for child in self._children:
            if child.pid and (not only_serving or _serves(child)):
                os.kill(child.pid, number)

    def _note(self, number: int, frame: Any) -> None:
        if number == signal.SIGHUP:
            self._reload = True
        else:
            self._stops.append(number)


def _serves(child: _Child) -> bool:
    return bool(child.pid) and child.pipe < 0


def _end_with_parent(parent: int) -> None:
    """Let this process end, after its open requests, when its parent ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        raise SystemExit(1)
