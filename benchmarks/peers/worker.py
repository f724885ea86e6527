"""A peer's process: ``python -m benchmarks.peers.worker`` with the peer's own interpreter.

Reads one JSON request a line, answers each with one line: ``{"ok": ...}`` or ``{"error": text}``.
It imports the standard library, numpy and what `libraries` needs for its peer; not hbtvm,
unless that is the peer.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import resource
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.libraries import LIBRARIES, Call, Job, versions

_CHECKED = 32
"""Outputs are compared for so many calls of few rows."""

_BLOCKS = 1_000
"""Most different batches that calls go through."""


class Worker:
    """One peer with one model."""

    def __init__(self) -> None:
        self._ways: dict[str, Call] = {}
        self._X = np.empty((0, 0), np.float32)
        self._rows: Callable[[np.ndarray], Any] | None = None
        self._blocks: dict[int, list[Any]] = {}
        self._best: dict[int, str] = {}

    def versions(self, peer: str, packages: list[str]) -> dict[str, str] | None:
        """Versions of the peer's and further packages; None if the peer is not installed."""
        import importlib.metadata

        found = versions(peer)
        if found is None:
            return None
        try:
            return {**found, **{name: importlib.metadata.version(name) for name in packages}}
        except importlib.metadata.PackageNotFoundError:
            return None if peer == "native" else found

    def convert(self, job: dict[str, Any]) -> dict[str, float]:
        """Make the artifact; returns seconds, imports included, and peak memory in bytes."""
        given = Job(**job)
        make = LIBRARIES[given.peer].convert
        assert make is not None
        start = time.perf_counter()
        make(given)
        return {"seconds": time.perf_counter() - start, "peak_memory": peak_memory()}

    def load(self, job: dict[str, Any], rows: str) -> dict[str, float]:
        """Load model and rows; returns seconds of the former."""
        given = Job(**job)
        self._X = np.load(rows)
        if given.dtype == "float64":
            # Values that float32 does not hold, or a peer might take the short cut.
            self._X = self._X.astype(np.float64) * (1 + 2.0**-40)
        start = time.perf_counter()
        library = LIBRARIES[given.peer]
        self._ways = library.load(given)
        self._rows = library.rows(given) if library.rows else None
        return {"seconds": time.perf_counter() - start}

    def calibrate(self, rows: int) -> dict[str, Any]:
        """Warm up; find the fastest way to predict so many rows, and the seconds of a call."""
        # The branch predictor would learn a row that is repeated, which does not happen in
        # production: calls cycle through many batches.
        blocks: list[Any] = [
            self._X[i * rows : (i + 1) * rows] for i in range(min(_BLOCKS, len(self._X) // rows))
        ]
        if self._rows is not None:
            blocks = [self._rows(block) for block in blocks]
        self._blocks[rows] = blocks
        seconds = {}
        for name, call in self._ways.items():
            call(blocks[0])
            start = time.perf_counter()
            count = 0
            while count < 1 or (time.perf_counter() - start < 0.05 and count < 1_000):
                call(blocks[count % len(blocks)])
                count += 1
            seconds[name] = (time.perf_counter() - start) / count
        self._best[rows] = min(seconds, key=seconds.__getitem__)
        return {"way": self._best[rows], "seconds": min(seconds.values())}

    def time(self, rows: int, calls: int, cpu: bool = False) -> float:
        """Seconds per call, over so many calls; `cpu`: of this process's CPU time, instead of wall time."""
        clock = time.process_time if cpu else time.perf_counter
        call = self._ways[self._best[rows]]
        blocks = list(itertools.islice(itertools.cycle(self._blocks[rows]), calls))
        # Warm-up: threads may have gone to sleep while other peers were measured.
        call(blocks[-1])
        start = clock()
        for block in blocks:
            call(block)
        return (clock() - start) / calls

    def outputs(self, rows: int, to: str) -> list[int]:
        """Save what the calls return, below one another, as float64; returns the shape."""
        call = self._ways[self._best[rows]]
        parts = [
            np.array(call(block), np.float64).reshape(rows, -1) for block in self._blocks[rows][:_CHECKED]
        ]
        together = np.concatenate(parts)
        np.save(to, together)
        return list(together.shape)

    def memory(self) -> float:
        """Peak memory so far, in bytes."""
        return peak_memory()


def peak_memory() -> float:
    """Most memory that this process had at once, in bytes."""
    # ru_maxrss begins with what the process had that this one was forked from.
    try:
        found = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    except OSError:
        found = None
    return 1024.0 * (int(found[1]) if found else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def serve(worker: object) -> None:
    """Answer requests by a worker's methods until the input ends."""
    # Libraries may print to standard output, so answers go through a separate descriptor.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        request = json.loads(line)
        method: Callable[..., Any] = getattr(worker, request.pop("do"))
        try:
            answer = {"ok": method(**request)}
        except Exception as error:
            traceback.print_exc()
            text = " ".join(str(error).split())
            answer = {"error": f"{type(error).__name__}: {text}"[:300]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


if __name__ == "__main__":
    serve(Worker())
