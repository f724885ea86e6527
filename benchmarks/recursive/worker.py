"""A peer's process: ``python -m benchmarks.recursive.worker``; speaks as `benchmarks.peers.worker` does."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.worker import peak_memory, serve
from benchmarks.recursive.jobs import Job, Ready
from benchmarks.recursive.peers import PEERS, versions


class Worker:
    """One peer with one model and batch."""

    def __init__(self) -> None:
        self._ready: Ready | None = None
        self._before = 0.0

    def versions(self, peer: str) -> dict[str, str] | None:
        """Versions of the peer's packages; None if one is not installed."""
        return versions(peer)

    def convert(self, job: dict[str, Any]) -> dict[str, Any]:
        """Make hbtvm's package; returns seconds and the configurations in it."""
        from benchmarks.recursive.hbtvm_peer import convert

        start = time.perf_counter()
        configs = convert(Job(**job))
        return {"seconds": time.perf_counter() - start, "configs": configs}

    def load(self, job: dict[str, Any]) -> dict[str, Any]:
        """Make the peer ready and call it once.

        Returns
        -------
        ``seconds`` that this took. Memory is counted from here, libraries and weights as they are given
        before it.
        """
        given = Job(**job)
        peer = PEERS[given.peer]
        peer.imports()
        _ = given.weights, given.linear
        _forget_peak()
        self._before = _resident()
        start = time.perf_counter()
        self._ready = peer.make()(given)
        self._ready.call()
        return {"seconds": time.perf_counter() - start}

    def states(self, to: str) -> None:
        """Save the first state of all nodes."""
        assert self._ready is not None
        np.save(to, np.asarray(self._ready.states()))

    def calibrate(self, rows: int) -> dict[str, Any]:
        """Warm up; returns seconds of a call."""
        assert self._ready is not None
        seconds, count, start = 0.0, 0, time.perf_counter()
        while count < 2 or (seconds < 0.05 and count < 1_000):
            self._ready.call()
            count, seconds = count + 1, time.perf_counter() - start
        return {"way": "call", "seconds": seconds / count}

    def time(self, rows: int, calls: int) -> float:
        """Seconds per call, over so many calls."""
        assert self._ready is not None
        call = self._ready.call
        # Warm-up: threads may have gone to sleep while other peers were measured.
        call()
        start = time.perf_counter()
        for _ in range(calls):
            call()
        return (time.perf_counter() - start) / calls

    def outputs(self, rows: int, to: str) -> list[int]:
        """Save what a call returns; returns the shape."""
        assert self._ready is not None
        got = np.asarray(self._ready.call(), np.float64)
        np.save(to, got)
        return list(got.shape)

    def memory(self) -> float:
        """Most bytes since before the model was loaded, over what there was then."""
        return peak_memory() - self._before

    def linearise(self, job: dict[str, Any], calls: int) -> dict[str, float]:
        """Seconds in which hbtvm linearises a batch."""
        from benchmarks.recursive.hbtvm_peer import linearise

        return {"seconds": linearise(Job(**job), calls)}

    def limits(self, threads: int, sizes: list[int]) -> dict[str, Any]:
        """What this machine does at most, see `limits.measured`."""
        from benchmarks.recursive.limits import measured

        return measured(threads, sizes)


def _forget_peak() -> None:
    """Let the peak of memory start anew, where the system can."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _resident() -> float:
    """Bytes of memory in use."""
    try:
        return 4096.0 * int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return peak_memory()


if __name__ == "__main__":
    serve(Worker())
