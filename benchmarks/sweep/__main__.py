"""hbtvm's answers against scikit-learn's, class by class: ``python -m benchmarks.sweep``.

Fits every estimator of ``all_estimators()`` in several settings (its options; alone, in pipelines and in
other models; on floats, integers, frames, sparse rows), compiles it, and calls its methods with rows of all
types and containers, and with values at its thresholds. Each call is one of

agree       the same answer, within the tolerances of docs/reference/models.md
both raise  neither answers
refused     hbtvm raises one of its own errors where the library answers
more        hbtvm answers where the library raises, though not because of the rows' values; or its answer
            differs as docs/reference/models.md states
wrong       another answer, shape, type or container; an answer to rows that the library rejects; a crash

Ends with status 1 if any call is wrong. The same seeds give the same calls.
"""

from __future__ import annotations

import os

for _threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_threads, "1")

import argparse  # noqa: E402
import platform  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
from collections.abc import Sequence  # noqa: E402
from pathlib import Path  # noqa: E402

import numpy as np  # noqa: E402
import sklearn  # noqa: E402

from benchmarks.sweep import classes, processes, report  # noqa: E402
from benchmarks.sweep.compare import WRONG  # noqa: E402
from benchmarks.sweep.run import Outcome, summary  # noqa: E402
from benchmarks.sweep.settings import LIMIT  # noqa: E402


def main(argv: Sequence[str] | None = None) -> int:
    """Run the sweep; returns the exit status."""
    arguments = _parser().parse_args(argv)
    unknown = set(arguments.classes) - set(classes.classes())
    if unknown:
        print(f"no estimator that predicts or transforms: {', '.join(sorted(unknown))}", file=sys.stderr)
        return 2
    names = arguments.classes or list(classes.classes())
    tasks = [(name, seed) for name in names for seed in arguments.seeds]
    started = time.monotonic()
    outcomes: list[Outcome] = []
    for done in processes.run(tasks, arguments.jobs, arguments.limit, arguments.only, arguments.seconds):
        outcomes += done
        if done:
            counts = ", ".join(f"{count} {verdict}" for verdict, count in summary(done).items())
            print(f"{done[0].name}, seed {done[0].seed}: {counts}", file=sys.stderr, flush=True)
        outcomes.sort(key=lambda one: (one.name, one.seed))
        text = report.markdown(outcomes, _head(arguments, outcomes, time.monotonic() - started))
        if arguments.output is not None:
            arguments.output.parent.mkdir(parents=True, exist_ok=True)
            arguments.output.write_text(text)
    print(text)
    return 1 if any(outcome.counts[WRONG] for outcome in outcomes) else 0


def _head(arguments: argparse.Namespace, outcomes: list[Outcome], seconds: float) -> str:
    """What was run, in a paragraph."""
    seeds = ", ".join(map(str, arguments.seeds))
    calls = sum(outcome.counts.total() for outcome in outcomes)
    return (
        f"# Sweep over scikit-learn's estimators\n\n`python -m benchmarks.sweep`: {calls:,} calls of "
        f"{len({outcome.name for outcome in outcomes})} classes, at most {arguments.limit} settings of each, "
        f"seeds {seeds}; scikit-learn "
        f"{sklearn.__version__}, numpy {np.__version__}, Python {platform.python_version()}; "
        f"{seconds / 60:.0f} minutes, {arguments.jobs} processes."
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.sweep",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--classes", nargs="+", default=[], metavar="NAME", help="all, if not given")
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1])
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time")
    parser.add_argument("--limit", type=int, default=LIMIT, help="settings of a class and seed")
    parser.add_argument("--only", default="", metavar="REGEX", help="settings whose title has it")
    parser.add_argument("--seconds", type=float, default=300, help="that a class and seed may take")
    parser.add_argument("-o", "--output", type=Path, default=None, metavar="FILE", help="write tables there")
    return parser


if __name__ == "__main__":
    sys.exit(main())
