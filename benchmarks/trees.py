"""LightGBM's own predict against a tuned package, side by side in one run, on one thread.

``python -m benchmarks.trees`` trains a model of 500 trees, 31 leaves and 28 features,
tunes it, and prints a Markdown table; ``--json FILE`` keeps the figures. It ends with
status 1 where a floor that the project promises is not reached.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

import hbtvm
from benchmarks.common import duration, higgs_like, lightgbm_model, markdown, side_by_side

FLOORS = {10_000: 15.0, 1: 3.0}
"""Speed-ups promised, by rows."""

_LOAD = """
import time
start = time.perf_counter()
import numpy, hbtvm
model = hbtvm.load({path!r}, threads=1)
model.predict(numpy.zeros((1, {features}), "float32"))
print(time.perf_counter() - start)
"""


def main() -> int:
    """Run the benchmark; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.trees", description=__doc__)
    parser.add_argument("--trees", type=int, default=500)
    parser.add_argument("--leaves", type=int, default=31)
    parser.add_argument("--features", type=int, default=28)
    parser.add_argument("--no-search", action="store_true", help="compile with defaults instead of tuning")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")
    arguments = parser.parse_args()
    figures = measure(arguments)
    print(report(figures))
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")
    missed = [name for name, passed in figures["floors"].items() if not passed]
    print("All floors are reached." if not missed else f"Missed: {', '.join(missed)}.")
    return 1 if missed else 0


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Train, tune, and time."""
    booster = lightgbm_model(trees=arguments.trees, leaves=arguments.leaves, features=arguments.features)
    X = higgs_like(50_000, arguments.features, 1)[0][:10_000]
    sizes = (1, 100, 10_000)
    start = time.perf_counter()
    if arguments.no_search:
        model = hbtvm.compile(booster, batch_sizes=sizes, threads=1)
    else:
        model = hbtvm.tune(booster, batch_sizes=sizes, threads=1, log=None)
    tuning = time.perf_counter() - start

    expected = booster.predict(X, num_threads=1)
    got = model.predict(X)
    off = float(np.max(np.abs(got - expected) / np.abs(expected)))
    rows = []
    for count in sizes:
        batch = np.ascontiguousarray(X[:count])
        times = side_by_side(
            {
                "lightgbm": lambda batch=batch: booster.predict(batch, num_threads=1),
                "hbtvm": lambda batch=batch: model.predict(batch),
            }
        )
        rows.append({"rows": count, **times, "ratio": times["lightgbm"] / times["hbtvm"]})
    figures: dict[str, Any] = {
        "model": f"{arguments.trees} trees × {arguments.leaves} leaves × {arguments.features} features",
        "search": not arguments.no_search,
        "cpu": model.package.target["mcpu"],
        "cores": os.cpu_count(),
        "tuning_seconds": tuning,
        "candidate_seconds": candidate_seconds(booster),
        "load_seconds": load_seconds(model, arguments.features),
        "largest_relative_difference": off,
        "times": rows,
    }
    floors = {
        f"{n} rows: {floor:g}x": r["ratio"] >= floor
        for n, floor in FLOORS.items()
        for r in rows
        if r["rows"] == n
    }
    floors["compile one candidate: 1 s"] = figures["candidate_seconds"] < 1
    floors["load and first prediction: 1 s"] = figures["load_seconds"] < 1
    floors["within 1e-5 of LightGBM"] = off <= 1e-5
    return {**figures, "floors": floors}


def candidate_seconds(booster: Any) -> float:
    """Median seconds to schedule, compile and link one candidate, over all strategies and batch sizes."""
    from hbtvm.compiler.building.cpu import build_kernel
    from hbtvm.compiler.candidates.tasks import forests_of, usable
    from hbtvm.compiler.targets.target import resolve
    from hbtvm.run import read_model
    from hbtvm.strategies import workload_of

    forest = forests_of(read_model(booster).anchor, "float32")[0]
    target, times = resolve("cpu"), []
    with tempfile.TemporaryDirectory() as folder:
        for name, strategy in usable(forest, None, target)[0].items():
            for rows in (1, 10_000):
                workload = workload_of(forest, rows)
                start = time.perf_counter()
                path = os.path.join(folder, f"{name}-{rows}.so")
                build_kernel(strategy, workload, strategy.default(workload, target), target, path)
                times.append(time.perf_counter() - start)
    return statistics.median(times)


def load_seconds(model: Any, features: int) -> float:
    """Median seconds, in fresh processes, to import hbtvm, load the package and predict a row."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "model.tar")
        model.save(path)
        script = _LOAD.format(path=path, features=features)
        runs = [
            float(subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout)
            for _ in range(5)
        ]
    return statistics.median(runs)


def report(figures: dict[str, Any]) -> str:
    """The figures as Markdown."""
    rows = [
        [f"{row['rows']:,}", duration(row["lightgbm"]), duration(row["hbtvm"]), f"**{row['ratio']:.1f}×**"]
        for row in figures["times"]
    ]
    return "\n".join(
        [
            f"{figures['model']}, float32, one thread of {figures['cpu']}; medians of one run:",
            "",
            markdown(["rows per call", "LightGBM", "hbtvm", "speed-up"], rows, second=["speed-up"]),
            "",
            f"- {'search' if figures['search'] else 'compilation'}: {figures['tuning_seconds']:.1f} s",
            f"- compiling one candidate: {duration(figures['candidate_seconds'])}",
            f"- importing hbtvm, loading the package, first prediction: {duration(figures['load_seconds'])}",
            f"- largest relative difference from LightGBM: {figures['largest_relative_difference']:.1e}",
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
