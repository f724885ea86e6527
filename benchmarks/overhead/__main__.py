"""What a prediction costs beside its kernel, and what threads gain: ``python -m benchmarks.overhead``.

Prints one table:

- one row: `predict` of a numpy row of float32 from Python, against the kernel alone, which a loop in C calls;
- more rows on one and on two threads, where one thread works for 100 µs and more;
- the hand-off to the pool's threads: what a call takes longer than the work of each thread.

Measurements take turns; figures are medians. Models are compiled without a search unless told otherwise.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

import hbtvm
from benchmarks.common import duration, locked, markdown
from benchmarks.overhead.loops import KernelLoop, hand_off_seconds
from benchmarks.overhead.models import CASES, Case
from hbtvm.runtime.package.file import KernelEntry, Package

ROUNDS = 15
OVERHEAD_GOAL, WHOLE_GOAL = 0.8e-6, 3e-6
"""Seconds over the kernel; seconds of all for LightGBM's 500 trees."""

THREADS_GOALS = {100: 1.6, 10_000: 1.85}
LEAST_WORK = 100e-6
"""Seconds of one thread from which two threads have to pay."""

Row = tuple[str, str, str, str, str, str]


def main() -> int:
    """Measure and print; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.overhead",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--models", nargs="+", choices=list(CASES), default=list(CASES), metavar="NAME",
                        help=", ".join(CASES))  # fmt: skip
    parser.add_argument("--cache", type=Path, default=Path(".cache/peers"), help="folder of trained models")
    parser.add_argument("--seconds", type=float, default=1.0, help="time to measure each figure for")
    parser.add_argument("--time-budget", type=float, metavar="S", help="tune each model for so many seconds")
    parser.add_argument(
        "--lock", type=Path, metavar="FILE", help="lock this file while timing, as flock(1) does"
    )
    arguments = parser.parse_args()
    rows: list[Row] = []
    for name in arguments.models:
        case = CASES[name](arguments.cache)
        print(f"{case.title} ...", file=sys.stderr, flush=True)
        single = _package(case, 1, arguments.time_budget)
        double = _package(case, 2, arguments.time_budget)
        with locked(arguments.lock):
            rows += one_row(case, single, arguments.seconds)
            rows += several_threads(case, single, double, arguments.seconds)
    with locked(arguments.lock):
        rows += hand_offs()
    print(markdown(["what", "model", "compared with", "measured", "figure", "goal"], rows))
    return 0


def _package(case: Case, threads: int, time_budget: float | None) -> Package:
    options = {"batch_sizes": (1, *THREADS_GOALS), "threads": threads}
    if time_budget is None:
        return hbtvm.compile(case.model, **options).package
    return hbtvm.tune(case.model, time_budget=time_budget, log=None, **options).package


def one_row_kernel(package: Package) -> KernelEntry:
    """The kernel that runs for one complete row of float32."""
    fitting = [kernel for kernel in package.kernels if kernel.dtype == "float32"]
    return min(fitting, key=lambda kernel: (kernel.rows, kernel.missing))


def medians(measured: dict[str, Callable[[int], float]], seconds: float) -> dict[str, float]:
    """Medians of seconds per call of functions that time so many calls, in turns."""
    calls = {}
    for name, timed in measured.items():
        timed(10)
        calls[name] = max(1, round(seconds / ROUNDS / max(timed(10), 1e-9)))
    found: dict[str, list[float]] = {name: [] for name in measured}
    for _ in range(ROUNDS):
        for name, timed in measured.items():
            found[name].append(timed(calls[name]))
    return {name: statistics.median(values) for name, values in found.items()}


def calls_of(call: Callable[[np.ndarray], object], blocks: list[np.ndarray]) -> Callable[[int], float]:
    """What times so many calls from Python, each with the next block of rows."""

    def timed(count: int) -> float:
        several = (blocks * -(-count // len(blocks)))[:count]
        start = time.perf_counter()
        for block in several:
            call(block)
        return (time.perf_counter() - start) / count

    return timed


def one_row(case: Case, package: Package, seconds: float) -> Iterator[Row]:
    """`predict` (and of classifiers `predict_proba`) of one row, against the kernel."""
    if package.stages:
        return
    model = hbtvm.Model.from_package(package, 1)
    rows = case.rows[:1000]
    blocks = [rows[i : i + 1] for i in range(len(rows))]
    measured = {"kernel": KernelLoop(one_row_kernel(package), rows).seconds}
    for method in case.methods:
        measured[method] = calls_of(getattr(model, method), blocks)
    found = medians(measured, seconds)
    for method in case.methods:
        over = found[method] - found["kernel"]
        goal = f"at most {duration(OVERHEAD_GOAL)} more: {_reached(over <= OVERHEAD_GOAL)}"
        if case.whole_goal:
            goal += f"; under {duration(WHOLE_GOAL)} in all: {_reached(found[method] < WHOLE_GOAL)}"
        yield (
            f"1 row, {method}",
            case.title,
            f"kernel {duration(found['kernel'])}",
            duration(found[method]),
            f"+{over * 1e6:.2f} µs",
            goal,
        )


def several_threads(case: Case, single: Package, double: Package, seconds: float) -> Iterator[Row]:
    """More rows on two threads, against one."""
    one, two = hbtvm.Model.from_package(single, 1), hbtvm.Model.from_package(double, 2)
    method = case.methods[-1]
    for n, goal in THREADS_GOALS.items():
        count = len(case.rows) // n
        blocks = [np.ascontiguousarray(case.rows[i * n : (i + 1) * n]) for i in range(min(count, 1000))]
        found = medians(
            {
                "one": calls_of(getattr(one, method), blocks),
                "two": calls_of(getattr(two, method), blocks),
            },
            seconds,
        )
        times = found["one"] / found["two"]
        enough = found["one"] >= LEAST_WORK
        yield (
            f"{n:,} rows, 2 threads, {method}",
            case.title,
            f"1 thread {duration(found['one'])}",
            duration(found["two"]),
            f"{times:.2f}×",
            f"at least {goal:g}×: {_reached(times >= goal)}" if enough else "- (short work)",
        )


def hand_offs() -> Iterator[Row]:
    """The pool alone: threads that are still looking out for work, and threads that sleep."""
    for pause, title in ((0.0, "calls without a pause"), (0.002, "calls 2 ms apart")):
        for work in (5e-6, 20e-6, 100e-6):
            values = [hand_off_seconds(2, work, pause, 200 if pause else 2000) for _ in range(5)]
            over = statistics.median(values)
            yield (
                f"hand-off, {title}",
                "-",
                f"work {duration(work)}",
                duration(work + over),
                f"+{over * 1e6:.2f} µs",
                "-",
            )


def _reached(is_so: bool) -> str:
    return "reached" if is_so else "missed"


if __name__ == "__main__":
    sys.exit(main())
