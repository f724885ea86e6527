"""What one model's tuning log is worth to the next model.

``python -m benchmarks.transfer`` tunes a first model with the defaults, keeping the log;
then a second model of like shape, once without a log and once with the first one's
log and a quarter of the trials. The winners of both runs are timed interleaved. Repeated for
several seeds; prints a Markdown table.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import hbtvm
from benchmarks.common import duration, higgs_like, lightgbm_model, markdown, side_by_side
from hbtvm.logs.record import Record

SIZES = (1, 100, 10_000)
CLOSE = 1.05
"""A run has reached another's quality when its best times are within this factor (geometric mean)."""


def main() -> int:
    """Run the benchmark; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.transfer", description=__doc__)
    parser.add_argument("--trials", type=int, default=240, help="trials of the runs without transfer")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here too")
    arguments = parser.parse_args()
    first = lightgbm_model(trees=500, features=28, seed=0)
    second = lightgbm_model(trees=400, features=32, seed=1)
    runs = [one_run(first, second, arguments.trials, seed) for seed in range(arguments.seeds)]
    print(report(runs, arguments.trials))
    if arguments.json:
        arguments.json.write_text(json.dumps(runs, indent=1) + "\n")
    return 0


def one_run(first: Any, second: Any, trials: int, seed: int) -> dict[str, Any]:
    """Tune both models; returns times and trials needed."""
    quarter = trials // 4
    options = {"batch_sizes": SIZES, "threads": 1, "seed": seed}
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "first.jsonl")
        before = hbtvm.search(first, trials=trials, log=log, **options)
        alone = hbtvm.search(second, trials=trials, **options)
        helped = hbtvm.search(second, trials=quarter, log=log, **options)
    X = higgs_like(50_000, 32, 2)[0][: max(SIZES)]
    times = {}
    for rows in SIZES:
        batch = np.ascontiguousarray(X[:rows])
        times[rows] = side_by_side(
            {
                "alone": lambda batch=batch: alone.model.predict(batch),
                "helped": lambda batch=batch: helped.model.predict(batch),
            }
        )
    goal = curve(alone.result.history)[-1] * CLOSE
    return {
        "seed": seed,
        "first_seconds": before.result.seconds.total,
        "alone_seconds": alone.result.seconds.total,
        "helped_seconds": helped.result.seconds.total,
        "times": times,
        "ratio": statistics.geometric_mean(times[rows]["helped"] / times[rows]["alone"] for rows in SIZES),
        "alone_trials": reached(alone.result.history, goal),
        "helped_trials": reached(helped.result.history, goal),
    }


def curve(history: Sequence[Record]) -> list[float]:
    """After each trial, the geometric mean over batch sizes of the best time so far."""
    best = dict.fromkeys(SIZES, math.inf)
    out = []
    for record in history:
        rows = int(record.workload["rows"])
        best[rows] = min(best[rows], record.cost)
        out.append(math.exp(sum(math.log(time) for time in best.values()) / len(best)))
    return out


def reached(history: Sequence[Record], goal: float) -> int | None:
    """Trials after which the curve is at or below the goal; None if it never is."""
    return next((i for i, value in enumerate(curve(history), 1) if value <= goal), None)


def report(runs: list[dict[str, Any]], trials: int) -> str:
    """The figures as Markdown."""
    rows = []
    for run in runs:
        needed = [str(run[f"{name}_trials"] or "not reached") for name in ("alone", "helped")]
        rows.append(
            [
                str(run["seed"]),
                f"{duration(run['first_seconds'])}",
                f"{duration(run['alone_seconds'])}",
                f"{duration(run['helped_seconds'])}",
                *needed,
                f"{run['ratio']:.3f}",
            ]
        )
    header = [
        "seed",
        "tuning the first",
        f"second, no log, {trials} trials",
        f"second, with the log, {trials // 4} trials",
        "trials to within 5%, no log",
        "with the log",
        "time per call, with the log / without",
    ]
    return markdown(header, rows)


if __name__ == "__main__":
    sys.exit(main())
