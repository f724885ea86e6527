"""A peer's process: ``python -m benchmarks.pipelines.worker``; speaks as `benchmarks.peers.worker` does."""

from __future__ import annotations

import importlib.metadata
import itertools
import pickle
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.worker import serve
from benchmarks.pipelines.peers import PACKAGES, PEERS, Job, Way

_BLOCKS = 200
"""Most different batches that calls go through."""

_CHECKED = 64
"""Calls of one row whose answers are compared; fewer of more rows."""

_MOST = 2_000
"""Rows of a call whose answers are compared."""

Peers = Mapping[str, Callable[[Job, Any], dict[str, Way]]]


class Worker:
    """One peer with one model.

    Parameters
    ----------
    peers
        By name; each returns its ways to predict.
    packages
        Of each peer, whose versions are told.
    """

    def __init__(self, peers: Peers = PEERS, packages: Mapping[str, tuple[str, ...]] = PACKAGES) -> None:
        self._peers, self._packages = peers, packages
        self._ways: dict[str, Way] = {}
        self._rows: Any = None
        self._blocks: dict[tuple[str, int], list[Any]] = {}

    def versions(self, peer: str) -> dict[str, str] | None:
        """Versions of the peer's packages; None if it is not installed."""
        try:
            return {name: importlib.metadata.version(name) for name in self._packages[peer]}
        except importlib.metadata.PackageNotFoundError:
            return None

    def load(self, job: dict[str, Any], rows: str) -> list[str]:
        """Load model and rows; returns the ways to predict."""
        self._rows = pickle.loads(Path(rows).read_bytes())
        given = Job(**job)
        self._ways = self._peers[given.peer](given, _part(self._rows, 0, 8))
        self._blocks = {}
        return list(self._ways)

    def calibrate(self, way: str, rows: int) -> float:
        """Make batches of so many rows, and warm up; returns the seconds of a call."""
        one = self._ways[way]
        count = min(_BLOCKS, len(self._rows) // rows)
        blocks = [one.prepare(_part(self._rows, i * rows, (i + 1) * rows)) for i in range(count)]
        self._blocks = {key: held for key, held in self._blocks.items() if key[1] == rows}
        self._blocks[way, rows] = blocks
        one.call(blocks[0])
        start, calls = time.perf_counter(), 0
        while calls < 1 or (time.perf_counter() - start < 0.03 and calls < 300):
            one.call(blocks[calls % count])
            calls += 1
        return (time.perf_counter() - start) / calls

    def time(self, way: str, rows: int, calls: int, cpu: bool = False) -> float:
        """Seconds per call, over so many calls; `cpu`: of this process's CPU time, instead of wall time."""
        clock = time.process_time if cpu else time.perf_counter
        call = self._ways[way].call
        blocks = list(itertools.islice(itertools.cycle(self._blocks[way, rows]), calls))
        call(blocks[-1])
        start = clock()
        for block in blocks:
            call(block)
        return (clock() - start) / calls

    def outputs(self, way: str, rows: int, to: str) -> None:
        """Save what the first calls return, shape (n, columns), as float64 where it is numbers."""
        blocks = self._blocks[way, rows][: max(1, _CHECKED // rows)]
        parts = [_dense(self._ways[way].call(block)[:_MOST]) for block in blocks]
        np.save(to, np.concatenate(parts), allow_pickle=True)


def _part(rows: Any, start: int, stop: int) -> Any:
    """Some rows of a frame, a series or an array, in memory of their own."""
    return (rows.iloc[start:stop] if hasattr(rows, "iloc") else rows[start:stop]).copy()


def _dense(found: Any) -> np.ndarray:
    dense = found.toarray() if hasattr(found, "toarray") else np.asarray(found)
    return dense.reshape(len(dense), -1)


if __name__ == "__main__":
    serve(Worker())
