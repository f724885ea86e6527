"""What one row costs on a GPU beside the device: ``python -m benchmarks.overhead.gpu``.

Calls a model's `predict` against a driver whose functions do nothing, and counts their calls: what is left is
Python. No GPU is needed, and scores mean nothing.
"""

from __future__ import annotations

import argparse
import ctypes
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

import hbtvm
from benchmarks.common import duration, markdown
from benchmarks.overhead.models import CASES
from hbtvm.runtime.cuda import driver
from hbtvm.runtime.model import Model

TARGET = {"kind": "cuda", "arch": "sm_90", "cores": 132}
ROUNDS = 15
NAMES = [name for name in CASES if name.startswith(("lightgbm", "xgboost"))] or list(CASES)


def main() -> int:
    """Measure and print; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.overhead.gpu", description=__doc__)
    parser.add_argument("--models", nargs="+", choices=list(CASES), default=NAMES, metavar="NAME")
    parser.add_argument("--cache", type=Path, default=Path(".cache/peers"), help="folder of trained models")
    parser.add_argument("--seconds", type=float, default=0.1, help="time of each reading")
    given = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory(prefix="hbtvm-idle-") as folder:
        idle = idle_driver(Path(folder))
        for name in given.models:
            case = CASES[name](given.cache)
            print(f"{case.title} ...", file=sys.stderr, flush=True)
            made = hbtvm.compile(case.model, target=TARGET, batch_sizes=(1,)).package
            X = np.ascontiguousarray(case.rows[:1], np.float32)
            rows.append((case.title, *one_row(Model(made), X, idle, given.seconds)))
    head = ("model", "one row", "driver's calls", "calls where another context is current")
    print(markdown(head, rows))
    return 0


def idle_driver(folder: Path) -> ctypes.CDLL:
    """Compile the driver that does nothing, and take it for the machine's.

    Raises
    ------
    RuntimeError
        If there is no C compiler.
    """
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        raise RuntimeError("a C compiler is needed")
    made = folder / "libidle.so"
    source = Path(__file__).with_name("idle_driver.c")
    subprocess.run([compiler, "-O2", "-w", "-shared", "-fPIC", "-o", str(made), str(source)], check=True)
    driver.LIBRARY = str(made)
    return ctypes.CDLL(str(made))


def one_row(model: Model, X: np.ndarray, idle: ctypes.CDLL, seconds: float) -> tuple[str, str, str]:
    """Return the median time of a call, and how many of the driver's functions it calls."""

    def run() -> None:
        model.predict(X)

    idle.idle_current(1)
    own = calls(run, idle)
    readings = [timed(run, seconds) for _ in range(ROUNDS)]
    idle.idle_current(0)
    other = calls(run, idle)
    idle.idle_current(1)
    return duration(statistics.median(readings)), str(own), str(other)


def calls(run: Callable[[], None], idle: ctypes.CDLL) -> int:
    """Return how many of the driver's functions a call uses that is not the first one."""
    idle.idle_calls.restype = ctypes.c_long
    run()
    before = int(idle.idle_calls())
    run()
    return int(idle.idle_calls()) - before


def timed(run: Callable[[], None], seconds: float) -> float:
    """Return the seconds of a call, from so many that they take about as long as told."""
    start = time.perf_counter()
    run()
    number = max(1, int(seconds / max(time.perf_counter() - start, 1e-7)))
    start = time.perf_counter()
    for _ in range(number):
        run()
    return (time.perf_counter() - start) / number


if __name__ == "__main__":
    raise SystemExit(main())
