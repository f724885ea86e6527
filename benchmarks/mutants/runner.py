"""Try batches of mutants in child processes, and find the mutant that ends a child."""

from __future__ import annotations

import importlib
import json
import os
import selectors
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
SECONDS = 20.0
"""Longest that a mutant may take on a busy machine, unless its kind's module has a constant of this name."""

START = 120.0
"""Longest that a child may take to start."""

BATCH = 500


@dataclass
class Report:
    """How mutants ended.

    Attributes
    ----------
    ends
        Mutants by the word of their kind's module.
    faults
        Sentences that begin with a mutant's number.
    """

    ends: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def add(self, other: Report) -> None:
        self.ends += other.ends
        self.faults += other.faults


def run(kind: str, folder: Path, count: int, seed: int, jobs: int = 1, batch: int = BATCH) -> Report:
    """Try mutants.

    Parameters
    ----------
    kind
        The name of the kind's module.
    folder
        Where its `prepare` wrote.
    count, seed
        Mutants 0 to `count` - 1 of this seed.
    jobs
        Children at a time.
    batch
        Mutants of a child.
    """
    batches = [range(first, min(first + batch, count)) for first in range(0, count, batch)]
    report = Report()
    with ThreadPoolExecutor(jobs) as pool:
        for part in pool.map(lambda numbers: _batch(kind, folder, numbers, seed), batches):
            report.add(part)
    return report


def _batch(kind: str, folder: Path, numbers: range, seed: int) -> Report:
    """Try a batch, and go on behind each mutant that ends its child."""
    report = Report()
    while numbers:
        child = _Child(kind, folder, numbers, seed)
        report.add(child.report)
        if child.ended is None:
            break
        at, how = child.ended
        report.ends["faults"] += 1
        report.faults.append(f"{at}: {how}{_alone(kind, folder, range(numbers.start, at + 1), seed)}")
        numbers = range(at + 1, numbers.stop)
    return report


def _alone(kind: str, folder: Path, numbers: range, seed: int) -> str:
    """Say how many of the last mutants of a batch it takes to end a child."""
    size = 1
    while True:
        last = numbers[-size:] if size < len(numbers) else numbers
        if _Child(kind, folder, last, seed).ended is not None:
            return "" if len(last) == 1 else f" (together with the {len(last) - 1} before it)"
        if len(last) == len(numbers):
            return " (only once)"
        size *= 2


class _Child:
    """A process that tries mutants.

    Attributes
    ----------
    report
        How those ended that did not end the child.
    ended
        The mutant that did, and how; None if none did.
    """

    def __init__(self, kind: str, folder: Path, numbers: Sequence[int], seed: int) -> None:
        self.report = Report()
        self.ended: tuple[int, str] | None = None
        self._seconds = float(getattr(importlib.import_module(kind), "SECONDS", SECONDS))
        command = [sys.executable, "-m", "benchmarks.mutants.child", kind, str(folder), str(seed),
                   str(numbers[0]), str(numbers[-1] + 1)]  # fmt: skip
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        try:
            at = self._follow(process)
            hung = process.poll() is None and at is not _DONE
            if hung:
                process.kill()
            said = process.communicate()[1].decode("utf-8", "replace").strip().splitlines()
        finally:
            process.kill()
            process.wait()
        if at is _DONE:
            return
        if at is None:
            raise RuntimeError(f"the child for {kind} did not start: {' '.join(said[-3:])}")
        how = f"longer than {self._seconds:.0f} s" if hung else f"exit status {process.returncode}"
        if not hung and process.returncode < 0:
            how = f"signal {-process.returncode}"
        self.ended = at, how + "".join(f"; {line}" for line in said[-1:])

    def _follow(self, process: subprocess.Popen[bytes]) -> int | None:
        """Read what the child says; return the mutant that it was trying when it fell silent."""
        assert process.stdout is not None
        at: int | None = None
        rest = b""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            until = time.monotonic() + START
            while selector.select(max(0.0, until - time.monotonic())):
                data = os.read(process.stdout.fileno(), 1 << 16)
                if not data:
                    process.wait()
                    return at
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    until = time.monotonic() + self._seconds
                    told = json.loads(line)
                    if told == "done":
                        return _DONE
                    if isinstance(told, int):
                        at = told
                    elif "fault" in told:
                        self.report.ends["faults"] += 1
                        self.report.faults.append(f"{at}: {told['fault']}")
                    else:
                        self.report.ends[told["end"]] += 1
        return at


_DONE = -1
