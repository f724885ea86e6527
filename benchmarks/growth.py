"""How hbtvm's time grows with the model and with the rows: ``python -m benchmarks.growth``.

Varies trees, depth, features, rows and threads one at a time, around a LightGBM model of 512
trees, 32 leaves and 28 features. Each step doubles a size, and is flagged where it costs more
than 2.2 times the time; more threads are flagged where they make a call slower. Writes
``growth.json``, ``growth.md`` and, where matplotlib is installed, ``growth.svg``.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import hbtvm
from benchmarks.common import duration, higgs_like, markdown, side_by_side
from benchmarks.growth_plot import plot, points_of
from benchmarks.peers.results import commit, machine

TREES, DEPTH, FEATURES = 512, 5, 28
BATCHES = (1, 100, 10_000)
DEAREST = 2.2
"""What twice the size may cost."""

SLOWER = 1.1
"""What more threads may cost: nothing, but for noise."""

SIZES: dict[str, list[int]] = {
    "trees": [2**i for i in range(6, 13)],
    "depth": list(range(2, 13)),
    "features": [2**i for i in range(3, 12)],
    "rows": [2**i for i in range(20)] + [1_000_000],
    "threads": sorted({2**i for i in range(8) if 2**i <= len(os.sched_getaffinity(0))}),
}
"""What is measured along each axis. A step of depth doubles the leaves."""

Point = dict[str, Any]


def main() -> int:
    """Run the benchmark; returns the exit status, 1 where something was flagged."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("build/growth"), help="folder of the results"
    )
    parser.add_argument("--axes", nargs="+", choices=list(SIZES), default=list(SIZES), metavar="AXIS",
                        help=", ".join(SIZES))  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="every other size, without the largest models")
    parser.add_argument("--threads", type=int, default=1, help="threads, but along the axis of threads")
    parser.add_argument("--time-budget", type=float, metavar="S",
                        help="search so long for each model, rather than compile with defaults")  # fmt: skip
    parser.add_argument("--seconds", type=float, default=0.5, help="time to measure each point for")
    parser.add_argument("--draw", type=Path, metavar="GROWTH.md",
                        help="measure nothing, draw the picture beside this report anew")  # fmt: skip
    arguments = parser.parse_args()
    if arguments.draw is not None:
        picture = arguments.draw.with_suffix(".svg")
        drawn = plot(points_of(arguments.draw.read_text()), picture)
        print(f"Wrote {picture}." if drawn else "No picture: matplotlib is not installed.")
        return 0
    arguments.output.mkdir(parents=True, exist_ok=True)
    axes = {}
    for axis in arguments.axes:
        print(f"{axis} ...", flush=True)
        axes[axis] = measure(axis, arguments)
    figures = {
        "machine": machine(),
        "commit": commit(),
        "time_budget": arguments.time_budget,
        "axes": axes,
        "flags": [text for axis, points in axes.items() for text in flags(axis, points)],
    }
    (arguments.output / "growth.json").write_text(json.dumps(figures, indent=1) + "\n")
    text = report(figures)
    (arguments.output / "growth.md").write_text(text)
    print(f"\n{text}")
    if not plot(axes, arguments.output / "growth.svg"):
        print("No picture: matplotlib is not installed.")
    return 1 if figures["flags"] else 0


def measure(axis: str, arguments: argparse.Namespace) -> list[Point]:
    """Time all points along an axis, interleaved."""
    sizes = SIZES[axis]
    if arguments.quick and axis != "threads":
        # Every other size: `doublings` normalises the factors.
        sizes = sizes[: -2 if axis in ("trees", "depth", "features") else None : 2]
    points: list[Point] = []
    calls: dict[str, Callable[[], object]] = {}
    whole = train(TREES if axis != "trees" else max(sizes), DEPTH, FEATURES) if axis != "features" else None
    for size in sizes:
        shape = {"trees": TREES, "depth": DEPTH, "features": FEATURES, "threads": arguments.threads}
        if axis != "rows":
            shape[axis] = size
        if axis in ("features", "depth"):
            booster, trees = train(TREES, shape["depth"], shape["features"]), TREES
        else:
            booster, trees = whole, shape["trees"]
        if axis == "rows" and points:
            model = points[0]["model"]
        else:
            print(f"  {axis} {size:,}", flush=True)
            model = _compile(booster, trees, shape["threads"], arguments.time_budget)
        for rows in [size] if axis == "rows" else BATCHES:
            point = {**shape, "rows": rows, "size": size, "model": model}
            points.append(point)
            calls[str(len(points) - 1)] = _cycling(model.predict, _rows(rows, shape["features"]), rows)
    times = side_by_side(calls, seconds=arguments.seconds, rounds=5)
    for i, point in enumerate(points):
        point["seconds"] = times[str(i)]
        del point["model"]
    return points


def train(trees: int, depth: int, features: int) -> Any:
    """Train a LightGBM regressor whose trees are as full as they can be."""
    import lightgbm

    X, y = higgs_like(20_000, features, 0)
    parameters = {
        "objective": "regression",
        "num_leaves": 2**depth,
        "max_depth": depth,
        # A small rate leaves residuals for late trees, so that they grow to full size, too.
        "learning_rate": 0.02,
        "min_data_in_leaf": 1,
        "max_bin": 63,
        "feature_fraction": min(1.0, 64 / features),
        "verbose": -1,
        "seed": 0,
    }
    noise = np.random.default_rng(1).normal(size=len(y))
    return lightgbm.train(parameters, lightgbm.Dataset(X, y + noise), trees)


def _compile(booster: Any, trees: int, threads: int, time_budget: float | None) -> hbtvm.Model:
    import lightgbm

    first = lightgbm.Booster(model_str=booster.model_to_string(num_iteration=trees))
    if time_budget is None:
        return hbtvm.compile(first, batch_sizes=BATCHES, threads=threads)
    return hbtvm.tune(first, batch_sizes=BATCHES, threads=threads, time_budget=time_budget, log=None)


def _rows(rows: int, features: int) -> np.ndarray:
    """At least so many rows, float32."""
    X, _ = higgs_like(10_000, features, 2)
    return X if rows <= len(X) else np.resize(X, (rows, features))


def _cycling(call: Callable[[np.ndarray], object], X: np.ndarray, rows: int) -> Callable[[], object]:
    """A call that takes other rows each time, so that the branch predictor does not learn them."""
    batches = itertools.cycle([X[i * rows : (i + 1) * rows] for i in range(min(1_000, len(X) // rows))])
    return lambda: call(next(batches))


def doublings(axis: str, points: Sequence[Point]) -> list[tuple[Point, Point, float]]:
    """Pairs of neighbouring points along an axis, and the factor in time per doubling of the size."""
    found = []
    for rows in [None] if axis == "rows" else sorted({point["rows"] for point in points}):
        line = [point for point in points if rows is None or point["rows"] == rows]
        for one, two in itertools.pairwise(line):
            times = two["size"] - one["size"] if axis == "depth" else math.log2(two["size"] / one["size"])
            found.append((one, two, (two["seconds"] / one["seconds"]) ** (1 / times)))
    return found


def flags(axis: str, points: Sequence[Point]) -> list[str]:
    """Sentences about each step whose time grows too fast."""
    found = []
    for one, two, cost in doublings(axis, points):
        if cost > (SLOWER if axis == "threads" else DEAREST):
            rows = "" if axis == "rows" else f"{one['rows']:,} rows, "
            found.append(f"{rows}{axis} {one['size']:,} to {two['size']:,}: {cost:.2f} times per doubling")
    return found


def report(figures: dict[str, Any]) -> str:
    """The figures as Markdown."""
    cpu = figures["machine"]
    parts = ["# How hbtvm's time grows", f"{cpu['cpu']}, {cpu['cores']} cores; hbtvm at {figures['commit']}."]
    for axis, points in figures["axes"].items():
        parts.append(f"## {axis.capitalize()}")
        costs = {(two["size"], two["rows"]): cost for _, two, cost in doublings(axis, points)}
        counts = [0] if axis == "rows" else sorted({point["rows"] for point in points})
        lines = []
        for size in dict.fromkeys(point["size"] for point in points):
            line = [f"{size:,}"]
            for rows in counts:
                point = next(p for p in points if p["size"] == size and rows in (0, p["rows"]))
                cost = costs.get((size, point["rows"]))
                time = duration(point["seconds"] / point["rows"])
                line.append(time if cost is None else f"{time} (×{cost:.2f})")
            lines.append(line)
        parts.append(
            markdown(
                [axis, *[f"{n:,} row{'s' * (n > 1)} per call" if n else "per row" for n in counts]], lines
            )
        )
    parts.append(
        f"Time per row; in brackets, what a doubling costs a call. Flagged: {len(figures['flags'])}."
    )
    parts += [f"- {text}" for text in figures["flags"]]
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    sys.exit(main())
