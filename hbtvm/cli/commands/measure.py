"""``hbtvm measure``: check and time candidates that another machine built."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from hbtvm.cli import files
from hbtvm.cli.arguments import examples, paragraphs, seconds
from hbtvm.cli.progress.pace import Pace
from hbtvm.cli.show import print_facts, print_line, print_table
from hbtvm.cli.signals import StopSignals, lasting
from hbtvm.words.quantities import clock, config, duration

if TYPE_CHECKING:
    from hbtvm.measuring.run import Outcome, Progress

_DESCRIPTION = """
Check and time the candidates that hbtvm tune --export built on another machine. This needs numpy and, for a
GPU, NVIDIA's driver: no compiler, training library or model.

Every time is on the disk before the next candidate starts. The same command resumes a run that Ctrl-C, a
crash or a lost machine stopped. Batch sizes take turns, and the most promising candidates come first, so
that a run that is cut off has results for each.
"""

_STOPPED = {
    "all": "all candidates are measured",
    "time": "the time budget is spent; the same command resumes",
    "interrupted": "stopped by {by}; the same command resumes",
}


def add_parser(commands: Any) -> None:
    """Add the command to the main parser's subparsers."""
    parser = commands.add_parser(
        "measure",
        help="measure candidates that another machine built",
        description=paragraphs(_DESCRIPTION),
        epilog=examples(
            ("hbtvm measure trials.tar", "writes trials.times.jsonl here"),
            ("hbtvm measure trials.tar -o h100.jsonl --time-budget 540", "for nine minutes at most"),
            ("hbtvm measure trials.tar --device cuda:1", "on the second GPU"),
            (
                "hbtvm log import trials.tar trials.times.jsonl",
                "then, where the model is: add the times",
            ),
            ("hbtvm compile model.pkl --target ...", "and package the fastest, for the same target"),
        ),
    )
    parser.add_argument("trials", metavar="TRIALS.tar", help="archive that hbtvm tune --export wrote")
    parser.add_argument(
        "-o",
        "--out",
        metavar="TIMES.jsonl",
        help="file of times to write or to resume (default: the archive's name with .times.jsonl, in the "
        "current folder)",
    )
    parser.add_argument(
        "--time-budget",
        type=seconds,
        metavar="TIME",
        help="longest time to measure, in seconds or as 30s, 5m, 2h (default: no limit)",
    )
    parser.add_argument(
        "--device", metavar="DEVICE", help="this machine's GPU, such as cuda:1 (default: the first)"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command.

    Returns 0; or, after a stop, 130 for Ctrl-C, 143 for SIGTERM and 129 for SIGHUP. Measured times are kept.
    """
    trials = files.existing(arguments.trials, "an archive of trials")
    name = trials.name.removesuffix(".tar")
    out = files.writable(arguments.out or f"{name}.times.jsonl")
    messages = lasting(sys.stderr)

    from hbtvm.measuring.run import measure

    with StopSignals() as signals:
        outcome = measure(
            trials,
            out,
            time_budget=arguments.time_budget,
            device=arguments.device,
            progress=signals.checked(_Lines(messages)),
        )
    _print(outcome, trials, out, signals.name)
    return signals.status if outcome.stopped == "interrupted" else 0


class _Lines:
    """Prints a line whenever `hbtvm.cli.progress.pace.Pace` says so."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._pace = Pace()
        self._compared = False

    def __call__(self, progress: Progress) -> None:
        """Print a line if it is due."""
        compares = progress.line.final is not None and not self._compared
        if not self._pace.due(progress.done / progress.total, progress.elapsed, compares):
            return
        parts = [f"{progress.done:,} of {progress.total:,}"]
        if progress.failed:
            parts.append(f"{progress.failed:,} failed")
        parts += [f"{group} {duration(best)}" for group, best in progress.best.items()]
        if compares:
            self._compared = True
            parts.append("comparing the fastest")
        print_line(f"{clock(progress.elapsed):>8}: {', '.join(parts)}", self._stream, indent=" " * 10)
        self._stream.flush()


def _print(outcome: Outcome, trials: Path, out: Path, stopped_by: str) -> None:
    if outcome.best:
        print_table(
            ("rows in a call", "strategy", "time of a call", "schedule"),
            [
                (group, candidate.strategy, duration(candidate.seconds), config(candidate.config))
                for group, candidate in outcome.best.items()
            ],
            numbers=("time of a call",),
        )
        print_line()
    earlier = f", {outcome.resumed:,} of them before" if outcome.resumed else ""
    failed = f", {outcome.failed:,} failed" if outcome.failed else ""
    print_facts(
        {
            "device": outcome.device,
            "measured": f"{outcome.done:,} of {outcome.total:,}{earlier}{failed}; "
            + _STOPPED[outcome.stopped].format(by=stopped_by),
            "times": str(out),
            "next": f"hbtvm log import {trials} {out}, where the model is compiled",
        }
    )
