"""The parent's side of a worker process."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TextIO

_ROOT = Path(__file__).parents[2]


class PeerError(Exception):
    """A peer could not do what was asked; the text says why."""


class Process:
    """A peer in a process of its own; `close` ends it, with all that it started.

    Parameters
    ----------
    python
        The interpreter of the environment in which the peer is installed.
    threads
        Threads that it may use.
    log
        Gets what the peer prints.
    module
        What runs in the process.
    """

    def __init__(
        self, python: str, threads: int, log: TextIO, module: str = "benchmarks.peers.worker"
    ) -> None:
        self._start([python, "-m", module], threads, log)

    def _start(self, command: Sequence[str], threads: int, log: TextIO) -> None:
        path = os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))
        environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": str(threads)}
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=environment,
            # A group of its own, so that compilers it has started end with it.
            start_new_session=True,
        )
        assert self._process.stdout is not None
        self._closed = False
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._process.stdout, selectors.EVENT_READ)

    def ask(self, do: str, limit: float = 120.0, **request: Any) -> Any:
        """Ask, and wait for the answer.

        Raises
        ------
        PeerError
            If the peer fails, dies, or takes longer than `limit` seconds. After the latter
            two the process is gone.
        """
        if self._closed:
            raise PeerError(f"{do}: its process has ended")
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(self._line(do, request).encode() + b"\n")
            self._process.stdin.flush()
        except OSError:
            raise PeerError(self._death()) from None
        # An answer is one short line, written at once: when there is some of it, there is all of it.
        if not self._selector.select(limit):
            self.close()
            raise PeerError(f"{do}: gave up after {limit:.0f} s")
        line = self._process.stdout.readline()
        if not line:
            raise PeerError(self._death())
        answer = json.loads(line)
        if "error" in answer:
            raise PeerError(f"{do}: {answer['error']}")
        return answer["ok"]

    def cpu_seconds(self) -> float:
        """Return the CPU time of the process, in seconds."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def _line(self, do: str, request: dict[str, Any]) -> str:
        """A request as the process reads it."""
        return json.dumps({"do": do, **request})

    @property
    def alive(self) -> bool:
        """Whether it can be asked."""
        return not self._closed and self._process.poll() is None

    def close(self) -> None:
        """End the process and what it started."""
        if self._closed:
            return
        self._closed = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._selector.close()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()

    def _death(self) -> str:
        status = self._process.wait()
        return f"died of signal {-status}" if status < 0 else f"ended with status {status}"


def find_interpreters(peers: Sequence[str], given: dict[str, str], folder: Path) -> dict[str, str]:
    """Where each peer is looked for: as given, else its own environment in the folder, else here."""
    found = {}
    for peer in peers:
        own = folder / peer / "bin" / "python"
        found[peer] = given.get(peer) or (str(own.absolute()) if own.exists() else sys.executable)
    return found
