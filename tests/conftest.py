"""Emulated GPUs, seeds, and the rule that no test is skipped for lack of an installable library."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from hbtvm.runtime.native.objects.cache import KERNELS, VARIABLE

if TYPE_CHECKING:
    from tests import emulated


@pytest.fixture
def machine() -> Iterator[emulated.Machine]:
    """Return a machine with two emulated GPUs."""
    from tests import emulated  # imports TVM, which takes seconds

    with emulated.machine() as found:
        yield found


@pytest.fixture
def cupy(machine: emulated.Machine, monkeypatch: pytest.MonkeyPatch) -> type[emulated.Cupy]:
    """Return an emulated CuPy on that machine."""
    from tests import emulated

    monkeypatch.setitem(sys.modules, "cupy", emulated.Cupy)  # type: ignore[arg-type]
    monkeypatch.setattr(emulated.Cupy.cuda, "stream", 0)
    emulated.Cupy.forget()
    return emulated.Cupy


@pytest.fixture(scope="module")
def shared_workers() -> Iterator[None]:
    """Let a module's searches in this process take over the idle workers of earlier ones."""
    from hbtvm.tuning.measuring import pool
    from tests import workers

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pool, "Worker", workers.worker)
        yield


@pytest.fixture(scope="module")
def unchecked_kernels() -> Iterator[None]:
    """Build a module's kernels in this process without checks of arguments, up to half of a build's time."""
    import tvm

    from tests.kernels import UNCHECKED

    with tvm.transform.PassContext(config=UNCHECKED):
        yield


CACHE = Path(__file__).resolve().parents[1] / ".cache"

# Without bytecode, each of the hundreds of processes that tests start compiles all that it imports.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Tests keep compiled C in the checkout, not in the user's home.
os.environ[VARIABLE] = str(CACHE / "native")
# All workers and later runs share built kernels. An empty variable builds each kernel anew.
os.environ.setdefault(KERNELS, str(CACHE / "kernels"))

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # So are commands started that a shell runs in the background, and those that they start.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True, scope="module")
def _interrupts_end_tests() -> Iterator[None]:
    """Take back handlers of Ctrl-C that a module's libraries install for good, such as Spark's."""
    before = signal.getsignal(signal.SIGINT)
    yield
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, before)


def _seed() -> None:
    """Estimators without a `random_state` take their numbers from numpy's global generator."""
    random.seed(0)
    np.random.seed(0)  # noqa: NPY002


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makemodule() -> None:
    """Seed what a module fits where it is imported."""
    _seed()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Seed what a test and its fixtures fit."""
    _seed()


_MAY_BE_MISSING = ("GPU", "NVIDIA", "this machine lacks", "CUDA", "nvcc", "does not hold this model")
"""Words in the reasons of skips that no installation of a library could avoid."""

_skipped: list[str] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Record the tests that were skipped though installing a library would have run them."""
    if report.skipped and not hasattr(report, "wasxfail"):
        reason = str(report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr)
        if not any(word in reason for word in _MAY_BE_MISSING):
            _skipped.append(f"{report.nodeid}: {reason}")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """With HBTVM_NO_SKIPS set, as continuous integration does, such a skip is a failure."""
    if os.environ.get("HBTVM_NO_SKIPS") and _skipped and not hasattr(session.config, "workerinput"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        print("\nskipped, though what they need can be installed:", *_skipped, sep="\n  ")
