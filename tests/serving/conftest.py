"""Compiled models, and services as processes that serve them."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.serving.models import CASES

ROOT = Path(__file__).resolve().parents[2]

TOKEN = "correct-horse-battery"
"""For changing models."""


class Server:
    """``hbtvm serve`` in a process of its own.

    Attributes
    ----------
    address
        Host and port.
    """

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._log = folder / "log"
        with open(self._log, "w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "hbtvm", "serve", *arguments, "--port", "0"],
                cwd=folder,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, "PYTHONPATH": str(ROOT), "HBTVM_CONTROL_TOKEN": TOKEN},
            )
        assert self.process.stdout is not None
        self.first_line = self.process.stdout.readline()
        found = re.match(r"http://([^/]+)/v2/models/", self.first_line)
        assert found, (self.first_line, self.log)
        self.address = found[1]

    @property
    def log(self) -> str:
        """What it has written to standard error."""
        return self._log.read_text()

    def logged(self, text: str) -> None:
        """Wait until it has logged that."""
        until(lambda: text in self.log, lambda: self.log)

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Tell it to stop; returns the exit status."""
        self.process.send_signal(number)
        return self.process.wait(20)

    def end(self) -> None:
        """End it, whatever it does."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def until(done: Callable[[], bool], told: Callable[[], object] = str, seconds: float = 20.0) -> None:
    """Wait until something is so."""
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, told()
        time.sleep(0.01)


@contextlib.contextmanager
def serving(folder: Path, *arguments: str) -> Iterator[Server]:
    """A service for the length of a block."""
    server = Server(folder, *arguments)
    try:
        yield server
    finally:
        server.end()


@pytest.fixture(scope="session")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of the packages of all cases."""
    folder = tmp_path_factory.mktemp("packages")
    for name, case in CASES.items():
        case.write(folder / f"{name}.tar")
    return folder


@pytest.fixture(scope="session")
def server(packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Return a service of all cases."""
    paths = [str(packages / f"{name}.tar") for name in CASES]
    options = ["--threads", "1", "--watch", "0", "--allow-model-control"]
    with serving(tmp_path_factory.mktemp("service"), *paths, *options) as found:
        yield found
