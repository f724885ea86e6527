"""A peer's process: ``python -m benchmarks.pipelines.worker``; speaks as `benchmarks.peers.worker` does."""

from __future__ import annotations

import importlib.metadata
import itertools
import pickle
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.worker import serve
from benchmarks.pipelines.peers import PACKAGES, PEERS, Job, Way

_BLOCKS = 200
"""Most different batches that calls go through."""


class Worker:
    """One peer with one pipeline."""

    def __init__(self) -> None:
        self._ways: dict[str, Way] = {}
        self._frame: Any = None
        self._blocks: dict[tuple[str, int], list[Any]] = {}

    def versions(self, peer: str) -> dict[str, str] | None:
        """Versions of the peer's packages; None if it is not installed."""
        try:
            return {name: importlib.metadata.version(name) for name in PACKAGES[peer]}
        except importlib.metadata.PackageNotFoundError:
            return None

    def load(self, job: dict[str, Any], frame: str) -> list[str]:
        """Load pipeline and rows; returns the ways to predict."""
        self._frame = pickle.loads(Path(frame).read_bytes())
        given = Job(**job)
        self._ways = PEERS[given.peer](given, self._frame.iloc[:8])
        self._blocks = {}
        return list(self._ways)

    def calibrate(self, way: str, rows: int) -> float:
        """Make batches of so many rows, and warm up; returns the seconds of a call."""
        one, frame = self._ways[way], self._frame
        count = min(_BLOCKS, len(frame) // rows)
        blocks = [one.prepare(frame.iloc[i * rows : (i + 1) * rows].copy()) for i in range(count)]
        self._blocks[way, rows] = blocks
        one.call(blocks[0])
        start, calls = time.perf_counter(), 0
        while calls < 1 or (time.perf_counter() - start < 0.03 and calls < 300):
            one.call(blocks[calls % count])
            calls += 1
        return (time.perf_counter() - start) / calls

    def time(self, way: str, rows: int, calls: int) -> float:
        """Seconds per call, over so many calls."""
        call = self._ways[way].call
        blocks = list(itertools.islice(itertools.cycle(self._blocks[way, rows]), calls))
        call(blocks[-1])
        start = time.perf_counter()
        for block in blocks:
            call(block)
        return (time.perf_counter() - start) / calls

    def outputs(self, way: str, rows: int, to: str) -> None:
        """Save what the first call returns, as float64 where it is numbers."""
        found = self._ways[way].call(self._blocks[way, rows][0])
        dense = found.toarray() if hasattr(found, "toarray") else np.asarray(found)
        np.save(to, dense.reshape(len(dense), -1), allow_pickle=True)


if __name__ == "__main__":
    serve(Worker())
