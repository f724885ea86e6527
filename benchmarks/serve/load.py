"""Load by ``wrk``: requests per second, latencies, and how many failed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

MISSING = "wrk, the load generator, is not installed; on Debian or Ubuntu: apt-get install wrk"

_DONE = """
done = function(summary, latency, requests)
  local e = summary.errors
  local failed = e.connect + e.read + e.write + e.status + e.timeout
  io.write(string.format('RESULT {"requests": %d, "microseconds": %d, "p50": %d, "p99": %d, "failed": %d}\\n',
    summary.requests, summary.duration, latency:percentile(50), latency:percentile(99), failed))
end
"""


@dataclass(frozen=True)
class Payload:
    """A request that is sent again and again.

    Attributes
    ----------
    name
        For people.
    body
        Its bytes.
    headers
        Of the request.
    """

    name: str
    body: bytes
    headers: dict[str, str]

    def write(self, path: Path) -> None:
        """Write what makes ``wrk`` send it."""
        content = path.with_suffix(".body")
        content.write_bytes(self.body)
        lines = ['wrk.method = "POST"']
        lines += [
            f"wrk.headers[{json.dumps(name)}] = {json.dumps(value)}" for name, value in self.headers.items()
        ]
        lines.append(f'local file = io.open({json.dumps(str(content))}, "rb")')
        lines.append('wrk.body = file:read("*a")')
        path.write_text("\n".join(lines) + "\n" + _DONE)


@dataclass(frozen=True)
class Measured:
    """What ``wrk`` tells.

    Attributes
    ----------
    rate
        Answers per second.
    p50, p99
        Latencies in seconds.
    requests, failed
        How many were answered, and how many of them otherwise than by 200, or not at all.
    """

    rate: float
    p50: float
    p99: float
    requests: int
    failed: int


class Load:
    """A running ``wrk``, on one core.

    Parameters
    ----------
    script
        See `Payload.write`.
    url
        Of the model.
    connections
        Open at the same time, each with one request at a time.
    seconds
        How long, unless it is stopped.
    core
        The CPU that it runs on.
    """

    def __init__(self, script: Path, url: str, connections: int, seconds: float, core: int) -> None:
        wrk = shutil.which("wrk")
        if wrk is None:
            raise FileNotFoundError(MISSING)
        command = [wrk, "-t1", f"-c{connections}", f"-d{max(1, round(seconds))}s", "-s", str(script), url]
        self._process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        )

    def stop(self) -> None:
        """End it early."""
        self._process.send_signal(signal.SIGINT)

    def running(self) -> bool:
        """Whether it still sends requests."""
        return self._process.poll() is None

    def result(self) -> Measured:
        """Wait for its end.

        Raises
        ------
        RuntimeError
            If it failed.
        """
        told = self._process.communicate()[0]
        lines = [line for line in told.splitlines() if line.startswith("RESULT ")]
        if not lines:
            raise RuntimeError(f"wrk: {told.strip()}")
        found = json.loads(lines[0].removeprefix("RESULT "))
        return Measured(
            found["requests"] / (found["microseconds"] * 1e-6),
            found["p50"] * 1e-6,
            found["p99"] * 1e-6,
            found["requests"],
            found["failed"],
        )
