"""Run a bundle's steps: a process each, results flushed one by one, until a deadline."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from typing import Any

from hbtvm.errors import InputError
from hbtvm.gpucheck.bundle import Bundle, Step
from hbtvm.gpucheck.child import MARK

RESULTS = "results.jsonl"
NOT_RUN = "not run"

_LEAST = 5.0  # seconds; with fewer left, no further step is begun
_TAIL = 1500  # characters of a crashed step's output


class Results:
    """The file of results: a line with the bundle's hash, then a line of JSON for each step.

    Raises `InputError` if the file is of another bundle, or if another process writes it.
    """

    def __init__(self, path: Path, digest: str) -> None:
        self._lock, self.path = threading.Lock(), path
        self.known: dict[str, dict[str, Any]] = {}
        self._file = path.open("a+")
        try:
            self._read(digest)
        except BaseException:
            self._file.close()
            raise

    def _read(self, digest: str) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise InputError(f"{self.path} is being written by another run of gpucheck.") from None
        self._file.seek(0)
        text = self._file.read()
        head, *lines = text.split("\n") if "\n" in text else [""]
        if not head:  # a new file, or a run that was cut off in its first line
            self._file.truncate(0)
            self._write({"bundle": digest})
            return
        if head != json.dumps({"bundle": digest}):
            raise InputError(
                f"{self.path} does not have the results of this bundle; name another folder with --out."
            )
        for line in lines:
            with contextlib.suppress(ValueError):  # the last line of a run that was cut off
                result = json.loads(line)
                self.known[result["step"]] = result
        if not text.endswith("\n"):
            self._file.write("\n")

    def add(self, result: dict[str, Any]) -> None:
        """Write a result; it is on disk when this returns."""
        with self._lock:
            self.known[result["step"]] = result
            self._write(result)

    def close(self) -> None:
        self._file.close()

    def _write(self, line: dict[str, Any]) -> None:
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()
        os.fsync(self._file.fileno())


def run(
    bundle: Bundle,
    results: Results,
    steps: Sequence[Step],
    until: float,
    jobs: int,
    told: Callable[[dict[str, Any]], None],
) -> None:
    """Run the steps that have no result yet.

    `until`: the deadline, of `time.monotonic`.
    `jobs`: most steps at once; steps that are ``alone`` run alone.
    `told`: called with each result.
    """

    def one(step: Step) -> None:
        left = until - time.monotonic()
        if left < _LEAST:
            return
        result = _result(bundle.folder, step, min(step.seconds, left), left, results.path.parent)
        if result["status"] != NOT_RUN:
            results.add(result)
        told(result)

    for alone, some in groupby(
        (step for step in steps if step.name not in results.known), lambda step: step.alone
    ):
        with ThreadPoolExecutor(1 if alone else jobs) as pool:
            list(pool.map(one, some))


def _result(folder: Path, step: Step, seconds: float, left: float, out: Path) -> dict[str, Any]:
    """Run a step in a process of its own and return its result."""
    fields = {"kind": step.kind, **step.fields}
    if "out" in fields:  # a step that runs as long as it may, with a file of its own
        fields |= {"out": str(out / fields["out"]), "seconds": seconds - _LEAST}
    command = [sys.executable, "-m", "hbtvm.gpucheck.child", str(folder), json.dumps(fields)]
    start = time.monotonic()
    child = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        printed, complained = child.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        _kill(child)
        # A step that the deadline cuts short says nothing about the device.
        status = NOT_RUN if seconds >= left else "failed"
        return _line(step, status, f"not done after {seconds:.0f} s", start)
    except BaseException:
        _kill(child)
        raise
    for line in printed.splitlines():
        if line.startswith(MARK):
            return {
                "step": step.name,
                "seconds": time.monotonic() - start,
                **json.loads(line.removeprefix(MARK)),
            }
    ended = f"signal {-child.returncode}" if child.returncode < 0 else f"status {child.returncode}"
    tail = " ".join((printed + complained).split())[-_TAIL:]
    return _line(step, "failed", f"its process ended with {ended}: {tail}", start)


def _line(step: Step, status: str, said: str, start: float) -> dict[str, Any]:
    return {"step": step.name, "seconds": time.monotonic() - start, "status": status, "said": said}


def _kill(child: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
