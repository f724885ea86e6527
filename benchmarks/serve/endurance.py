"""Memory of the service under load over time, and reloads and probes under load."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import psutil

from benchmarks.serve.load import Load, Measured
from benchmarks.serve.servers import MODEL, Server


@dataclass(frozen=True)
class Endured:
    """What came of it.

    Attributes
    ----------
    load
        Requests, and how many of them failed.
    before, after
        Bytes of resident memory: medians of the second and the last tenth of the time.
    reloads
        How many there were.
    """

    load: Measured
    before: float
    after: float
    reloads: int

    def told(self) -> str:
        """A sentence."""
        grown = (self.after - self.before) / 1024
        what = f"{self.reloads:,} reloads during " if self.reloads else ""
        return (
            f"{what}{self.load.requests:,} requests: {self.load.failed:,} failed; resident memory "
            f"{self.before / 2**20:.1f} MiB in the second tenth of the time, "
            f"{self.after / 2**20:.1f} MiB in the last ({grown:+,.0f} KiB); "
            f"{self.load.rate:,.0f} requests per second."
        )


def soak(server: Server, script: Path, minutes: float, core: int, connections: int) -> Endured:
    """Load for some minutes."""
    assert server.process is not None
    watched = psutil.Process(server.process.pid)
    load = Load(script, server.url, connections, 60 * minutes, core)
    sizes = []
    while load.running():
        sizes.append(watched.memory_info().rss)
        time.sleep(min(1.0, minutes / 2))
    return _endured(load, sizes, 0)


def reload(server: Server, script: Path, packages: tuple[Path, Path], count: int, core: int) -> Endured:
    """Replace the package so many times under load, each time by the other of two."""
    assert server.process is not None
    watched = psutil.Process(server.process.pid)
    load = Load(script, server.url, 16, 24 * 3600, core)
    sizes = []
    try:
        for i in range(count):
            version = _version(server)
            new = server.folder / "new"
            shutil.copyfile(packages[i % 2], new)
            os.replace(new, server.folder / f"{MODEL}.tar")
            end = time.monotonic() + 30
            while _version(server) == version:
                if time.monotonic() > end:
                    raise RuntimeError("the service does not load a new package")
                time.sleep(0.02)
            sizes.append(watched.memory_info().rss)
    finally:
        load.stop()
    return _endured(load, sizes, count)


def probes(server: Server, seconds: float) -> list[float]:
    """Times of health probes, each by a connection of its own, as orchestrators send them."""
    times = []
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        start = time.perf_counter()
        with urllib.request.urlopen(f"http://127.0.0.1:{server.port}/v2/health/live", timeout=30) as answer:
            answer.read()
        times.append(time.perf_counter() - start)
        time.sleep(0.02)
    return times


def _endured(load: Load, sizes: list[int], reloads: int) -> Endured:
    tenth = max(1, len(sizes) // 10)
    before, after = sizes[tenth : 2 * tenth] or sizes, sizes[-tenth:]
    return Endured(load.result(), statistics.median(before), statistics.median(after), reloads)


def _version(server: Server) -> str:
    url = f"http://127.0.0.1:{server.port}/v2/repository/index"
    with urllib.request.urlopen(urllib.request.Request(url, b"", method="POST"), timeout=30) as answer:
        told = json.loads(answer.read())[0]
    if told["reason"]:
        raise RuntimeError(told["reason"])
    found: str = told["version"]
    return found
