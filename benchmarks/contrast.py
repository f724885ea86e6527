"""Make the records with contrast that ship in ``logs/records``: what cost models know before a first run.

``python -m benchmarks.contrast`` draws candidates of every strategy at random for some small synthetic
forests, for this machine and, where it can run them, for plainer machines, and measures each: a quarter of an
hour on two cores. Stopped with ``--work`` given, it goes on where it was. New strategies come in by
themselves, as `LESSONS` names none.

Winners, which ``python -m benchmarks.records`` makes, say what to try first. They do not say what is slow.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.common import locked
from benchmarks.packed import pack
from benchmarks.records import runnable
from benchmarks.search.measure import draw
from benchmarks.synthetic import graph
from hbtvm.compiler.candidates.program import write_study
from hbtvm.compiler.candidates.tasks import forests_of, make_tasks, usable
from hbtvm.logs.query import DRAWN
from hbtvm.logs.store import Log
from hbtvm.schedules.workload import Target


@dataclass(frozen=True)
class Lesson:
    """Candidates to be drawn: of each strategy that can hold the forest, for each of the batch sizes."""

    shape: dict[str, Any]
    rows: tuple[int, ...]
    threads: int = 1


_SMALL = {"trees": 120, "leaves": 31, "features": 20, "depth": 9, "missing": True}
LESSONS = (
    Lesson(_SMALL, (1, 100, 3000)),
    Lesson(_SMALL, (3000,), threads=2),
    Lesson({"trees": 50, "leaves": 12, "features": 60, "depth": 4}, (1, 3000)),
    Lesson({"trees": 80, "leaves": 63, "features": 150, "depth": 8, "outputs": 4}, (100, 3000)),
    Lesson({"trees": 200, "leaves": 16, "features": 40, "depth": 6}, (1, 300)),
    Lesson({"trees": 40, "leaves": 300, "features": 30, "depth": 12, "outputs": 2, "width": 2}, (100, 3000)),
)
"""None of them is a model of `benchmarks.search`, on which searches that know these records are tried."""


def main() -> int:
    """Measure what is lacking, and write the files that ship; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.contrast",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-o", "--out", type=Path, default=Path("logs/records"), help="folder to write to")
    parser.add_argument("--work", type=Path, help="folder for the full logs (default: a temporary one)")
    parser.add_argument("--candidates", type=int, default=32, help="to draw for each workload and strategy")
    parser.add_argument("--lock", type=Path, metavar="FILE", help="lock this file, as flock(1) does")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = arguments.work or Path(folder)
        work.mkdir(parents=True, exist_ok=True)
        for name, target in runnable():
            log = Log(work / f"contrast-{name}.jsonl")
            for lesson in LESSONS:
                with locked(arguments.lock):
                    count = _draw(lesson, target, log, arguments.candidates)
                print(f"{name}: {count} candidates of {lesson}", flush=True)
            pack(log.read().records, arguments.out / f"contrast-{name}.jsonl.xz", {DRAWN: True})
    return 0


def _draw(lesson: Lesson, target: Target, log: Log, candidates: int) -> int:
    """Measure a lesson's candidates; returns how many there are."""
    ensemble = graph(**lesson.shape).anchor
    forest = forests_of(ensemble, "float32")[0]
    strategies, _ = usable(forest, None, target)
    count = 0
    with tempfile.TemporaryDirectory(prefix="contrast-") as folder:
        write_study(Path(folder), ensemble, [forest], max(lesson.rows))
        tasks = make_tasks(forest, strategies, target, lesson.rows, lesson.threads, Path(folder))
        for task in tasks:
            result = draw([replace(task, initial=())], log, candidates)
            if result.interrupted:
                raise KeyboardInterrupt
            count += result.trials
    return count


if __name__ == "__main__":
    sys.exit(main())
