"""A peer's process: ``python -m benchmarks.explain.worker``; speaks as `benchmarks.peers.worker` does."""

from __future__ import annotations

import importlib.metadata
import itertools
import pickle
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.explain.peers import PACKAGES, PEERS, Job, Way
from benchmarks.peers.worker import serve

_BLOCKS = 200
"""Most different batches that calls go through."""

_CHECKED = 32
"""Calls of one row whose answers are compared."""


class Worker:
    """One peer with one model."""

    def __init__(self) -> None:
        self._ways: dict[str, Way] = {}
        self._rows: Any = None
        self._blocks: dict[str, list[Any]] = {}

    def versions(self, peer: str) -> dict[str, str] | None:
        """Return the versions of the peer's packages; None if it is not installed."""
        try:
            return {name: importlib.metadata.version(name) for name in PACKAGES[peer]}
        except importlib.metadata.PackageNotFoundError:
            return None

    def load(self, peer: str, job: dict[str, Any], rows: str) -> list[str]:
        """Load model and rows; returns the ways to call the peer."""
        path = Path(rows)
        self._rows = np.load(path) if path.suffix == ".npy" else pickle.loads(path.read_bytes())
        self._ways = PEERS[peer](Job(**job))
        return list(self._ways)

    def calibrate(self, way: str, rows: int, most: float) -> dict[str, Any]:
        """Warm up, and make batches of as many rows as a call of `most` seconds takes.

        Returns
        -------
        ``rows`` of a call, at most those asked for, and its ``seconds``.
        """
        call, size = self._ways[way].call, 1
        call(self._block(way, 0, 1))
        while True:
            took = _seconds(call, [self._block(way, 0, size)])
            if size == rows or took > most / 10:
                break
            size = min(rows, 10 * size)
        size = min(rows, max(1, int(size * most / took)))
        count = min(_BLOCKS, len(self._rows) // size)
        self._blocks[way] = [self._block(way, i, size) for i in range(count)]
        calls = min(count, max(1, int(0.02 / took)))
        return {"rows": size, "seconds": _seconds(call, self._blocks[way][:calls])}

    def time(self, way: str, calls: int, cpu: bool = False) -> float:
        """Return the seconds of a call, over so many calls; `cpu`: of this process's CPU time."""
        blocks = list(itertools.islice(itertools.cycle(self._blocks[way]), calls))
        if calls > 1:
            self._ways[way].call(blocks[-1])
        return _seconds(self._ways[way].call, blocks, time.process_time if cpu else time.perf_counter)

    def outputs(self, way: str, to: str) -> None:
        """Save the answers to the first batches as float64, shape (n, columns)."""
        blocks = self._blocks[way]
        checked = blocks[: _CHECKED if isinstance(blocks[0], dict) or len(blocks[0]) == 1 else 1]
        call = self._ways[way]
        parts = [np.asarray(call.answer(call.call(block)), np.float64) for block in checked]
        np.save(to, np.concatenate([part.reshape(len(part), -1) for part in parts]))

    def _block(self, way: str, number: int, size: int) -> Any:
        start, stop = number * size, (number + 1) * size
        rows = self._rows.iloc[start:stop] if hasattr(self._rows, "iloc") else self._rows[start:stop]
        return self._ways[way].prepare(rows.copy())


def _seconds(call: Any, blocks: list[Any], clock: Callable[[], float] = time.perf_counter) -> float:
    start = clock()
    for block in blocks:
        call(block)
    return (clock() - start) / len(blocks)


if __name__ == "__main__":
    serve(Worker())
