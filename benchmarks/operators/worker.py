"""A peer's process: ``python -m benchmarks.operators.worker``; speaks as `benchmarks.peers.worker` does."""

from __future__ import annotations

from benchmarks.operators.peers import PACKAGES, PEERS
from benchmarks.peers.worker import serve
from benchmarks.pipelines.worker import Worker

if __name__ == "__main__":
    serve(Worker(PEERS, PACKAGES))
