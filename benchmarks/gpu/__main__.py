"""hbtvm against other libraries on one GPU: ``python -m benchmarks.gpu``.

Trains 500 trees on each data set's shape (each once, kept in the cache), tunes them, and times calls of 1 to
1,000,000 rows in three ways, which are the same for hbtvm and all others (`benchmarks.gpu.clock.KINDS`). All
compute the same output, base score and link included, to a relative error that `compare` allows. Writes
results.json, results.md and, with matplotlib, results.svg.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

import hbtvm
from benchmarks.common import duration, markdown
from benchmarks.gpu.bounds import pipes
from benchmarks.gpu.clock import Calls, Clock, medians
from benchmarks.gpu.peers import OUTPUTS, Make, compare, own_calls, peers, require_arrays
from benchmarks.gpu.report import plot, table
from benchmarks.peers.data import SETS
from benchmarks.peers.train import trained
from hbtvm import api
from hbtvm.errors import DeviceError
from hbtvm.runtime.cuda import driver
from hbtvm.runtime.cuda.memory import Event, Memory
from hbtvm.runtime.model import Model

ROWS = (1, 10, 100, 1_000, 10_000, 100_000, 1_000_000)


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    parser.add_argument(
        "--models", nargs="+", choices=("lightgbm", "xgboost"), default=["lightgbm", "xgboost"]
    )
    parser.add_argument("--data", nargs="+", choices=tuple(SETS), default=list(SETS))
    parser.add_argument("--rows", nargs="+", type=int, default=list(ROWS))
    parser.add_argument(
        "--output",
        choices=tuple(OUTPUTS),
        default="predictions",
        help="what all of them compute (default: predictions, which FIL gives, too)",
    )
    parser.add_argument(
        "--time-budget", type=float, default=300.0, help="seconds to tune each model (default: 300)"
    )
    parser.add_argument("--no-search", action="store_true", help="take default schedules")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path, default=Path(".cache/gpu"))
    return parser


def main() -> int:
    given = arguments().parse_args()
    try:
        gpu = driver.gpu()
        require_arrays()
    except (DeviceError, ImportError) as error:
        print(f"benchmarks.gpu: {error}")
        return 2
    roofs = {"bandwidth": copy_bandwidth(gpu), "comparisons": comparisons(gpu)}
    cells: list[dict[str, Any]] = []
    left_out: dict[str, str] = {}
    given.out.mkdir(parents=True, exist_ok=True)
    for model in given.models:
        for data in given.data:
            about = trained(model, data, given.out / "models")
            options: dict[str, Any] = {"target": "cuda", "batch_sizes": tuple(given.rows)}
            if given.no_search:
                tuned = api.compile(about["path"], **options)
            else:
                log = given.out / "tuning.jsonl"
                tuned = hbtvm.tune(about["path"], time_budget=given.time_budget, log=log, **options)
            tuned.save(given.out / f"{model}-{data}.tar")
            others, lacking = peers(model, about["path"], given.output)
            left_out |= lacking
            pool = np.load(about["rows"])
            for rows in given.rows:
                X = np.ascontiguousarray(np.resize(pool, (rows, pool.shape[1])))
                cell = {"model": model, "data": data, "rows": rows}
                cells.append(cell | measure(tuned, X, others, given.output, given.rounds, roofs))
                print(
                    markdown(("cell", "times"), [(f"{model} {data} {rows:,}", _told(cells[-1]))]), flush=True
                )
                results = {"gpu": gpu.name, "driver": gpu.driver.version(), "roofs": roofs}
                results |= {"output": given.output, "left_out": left_out, "cells": cells}
                (given.out / "results.json").write_text(json.dumps(results, indent=1))
    (given.out / "results.md").write_text(table(results))
    print(table(results))
    plot(results, given.out / "results.svg")
    return 0


def measure(
    model: Model, X: np.ndarray, others: dict[str, Make], output: str, rounds: int, roofs: dict[str, float]
) -> dict[str, Any]:
    """Time all alternatives on the same rows, interleaved; an error is recorded in place of a time."""
    own = own_calls(model, X, output)
    own.device()
    want, clock = own.host(), Clock(driver.gpu())
    calls: dict[str, Calls] = {"hbtvm": own}
    errors: dict[str, str] = {}
    for name, make in others.items():
        try:
            made = make(X)
            made.device()
            compare(made.host(), want)
            calls[name] = made
        except Exception as error:
            errors[name] = f"{type(error).__name__}: {str(error).splitlines()[0][:150]}"
    times = medians(clock, calls, rounds)
    forest = model.package.forest
    seconds = times["queued"]["hbtvm"]
    moved = X.nbytes + want.nbytes
    # Each row takes at least one comparison for each level of a balanced tree.
    depth = math.log2(max(2.0, forest["leaves"] / forest["trees"]))
    return {
        "times": times,
        "errors": errors,
        "rows_per_second": len(X) / seconds,
        "share_of_bandwidth": moved / seconds / roofs["bandwidth"],
        "share_of_comparisons": len(X) * forest["trees"] * depth / seconds / max(roofs["comparisons"], 1.0),
    }


def comparisons(gpu: driver.Gpu) -> float:
    """Return how many numbers a device compares per second at its highest clock."""
    return gpu.multiprocessors * pipes.lanes("FSETP") * gpu.clock


def copy_bandwidth(gpu: driver.Gpu, size: int = 1 << 28) -> float:
    """Bytes per second that the device reads and writes in a copy of its own."""
    with gpu.current():
        one, other = Memory(gpu, size), Memory(gpu, size)
        first, last = Event(gpu, timed=True), Event(gpu, timed=True)
        readings = []
        for _ in range(5):
            first.record(None)
            for _ in range(10):
                gpu.driver.call("cuMemcpyDtoDAsync_v2", one.handle, other.handle, size, None)
            last.record(None)
            readings.append(20 * size / last.seconds_since(first))
    return max(readings)


def _told(cell: dict[str, Any]) -> str:
    return ", ".join(f"{name} {duration(seconds)}" for name, seconds in cell["times"]["queued"].items())


if __name__ == "__main__":
    raise SystemExit(main())
