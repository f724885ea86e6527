"""Make the records that ship in ``logs/records``: tuned schedules for common shapes.

``python -m benchmarks.records`` tunes synthetic forests of common shapes for this machine and,
where it can run them, for plainer machines, and keeps each workload's best schedules, from which
``hbtvm compile`` chooses and ``hbtvm tune`` starts. It can be stopped; started again, it continues.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hbtvm
from benchmarks.common import locked
from benchmarks.synthetic import graph
from hbtvm.compiler.targets.target import resolve
from hbtvm.logs.query import prune
from hbtvm.logs.store import Log
from hbtvm.runtime.cpu import missing_features
from hbtvm.schedules.workload import Target

SIZES = (1, 100, 10_000)
SHAPES: list[dict[str, Any]] = [
    {"trees": 500, "leaves": 31, "features": 28},
    {"trees": 100, "leaves": 31, "features": 28, "compare_dtype": "float64", "missing": True},
    {"trees": 500, "leaves": 31, "features": 500},
    {"trees": 700, "leaves": 31, "features": 54, "outputs": 7},
    {"trees": 500, "leaves": 8, "features": 20},
    {"trees": 200, "leaves": 64, "features": 40},
    {"trees": 500, "leaves": 150, "features": 28, "depth": 8, "missing": True},
    {"trees": 100, "leaves": 60, "features": 28, "depth": 6},
    {"trees": 210, "leaves": 150, "features": 54, "depth": 8, "outputs": 7},
    {"trees": 500, "leaves": 200, "features": 28, "depth": 8, "precise": True},
    {"trees": 500, "leaves": 200, "features": 54, "depth": 8, "outputs": 7, "width": 7},
    {"trees": 500, "leaves": 120, "features": 2000, "depth": 8},
    {"trees": 100, "leaves": 1000, "features": 28, "outputs": 2, "width": 2},
    {"trees": 100, "leaves": 5000, "features": 28},
    {"trees": 1, "leaves": 200, "features": 20},
]
TARGETS = {"avx512": "x86-64-v4", "avx2": "x86-64-v3"}


def runnable() -> Iterator[tuple[str, Target]]:
    """Those of the targets that this machine can run, by name; says which it cannot."""
    for name, mcpu in TARGETS.items():
        target = resolve({"kind": "llvm", "mcpu": mcpu})
        if missing_features(target):
            print(f"{name}: this machine cannot run it")
        else:
            yield name, target


def main() -> int:
    """Tune all shapes; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.records", description=__doc__)
    parser.add_argument("-o", "--out", type=Path, default=Path("logs/records"), help="folder to write to")
    parser.add_argument("--work", type=Path, help="folder for the full logs (default: a temporary one)")
    parser.add_argument("--trials", type=int, default=60, help="candidates for each shape and target")
    parser.add_argument("--lock", type=Path, metavar="FILE", help="lock this file, as flock(1) does")
    parser.add_argument("--keep", type=int, default=2, help="records to keep of each workload and strategy")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = arguments.work or Path(folder)
        work.mkdir(parents=True, exist_ok=True)
        for name, target in runnable():
            log = work / f"{name}.jsonl"
            for shape in SHAPES:
                for threads in (1, 2):
                    with locked(arguments.lock):
                        tune_shape(shape, target, threads, log, arguments.trials)
            kept = work / f"{name}-kept.jsonl"
            kept.write_bytes(log.read_bytes())
            prune(kept, keep=arguments.keep, others=0, errors=0)
            arguments.out.mkdir(parents=True, exist_ok=True)
            Log(arguments.out / f"{name}.jsonl").replace(Log(kept).read().records)
    return 0


def tune_shape(shape: dict[str, Any], target: Target, threads: int, log: Path, trials: int) -> None:
    """Tune one shape and say what came of it."""
    found = hbtvm.search(
        graph(**shape), target=target, batch_sizes=SIZES, threads=threads, trials=trials, log=log
    )
    times = {
        group: f"{entry.best.task.strategy} {entry.best.time:.3g} s"
        for group, entry in found.result.groups.items()
        if entry.best is not None
    }
    print(json.dumps({"target": target["mcpu"], "threads": threads, **shape, "best": times}), flush=True)


if __name__ == "__main__":
    sys.exit(main())
