"""``hbtvm log import``: add another machine's measurements to a tuning log."""

from __future__ import annotations

import argparse
from typing import Any

from hbtvm.cli import files
from hbtvm.cli.arguments import DEFAULT_LOG, examples
from hbtvm.cli.show import print_line
from hbtvm.words.quantities import count


def add_import(actions: Any) -> None:
    """Add the command to those of ``hbtvm log``."""
    parser = actions.add_parser(
        "import",
        help="add another machine's measurements",
        description="Add the times that hbtvm measure wrote, of candidates that hbtvm tune --export built, "
        "to a tuning log. Records that the log has are not added again.",
        epilog=examples(
            ("hbtvm log import trials.tar times.jsonl", "to hbtvm-tuning.jsonl here"),
            ("hbtvm log import trials.tar h100.jsonl h200.jsonl --log team.jsonl", "of two machines"),
        ),
    )
    parser.add_argument("trials", metavar="TRIALS.tar", help="archive that was measured")
    parser.add_argument("times", metavar="TIMES.jsonl", nargs="+", help="files that hbtvm measure wrote")
    parser.add_argument(
        "--log",
        default=DEFAULT_LOG,
        metavar="PATH",
        help="tuning log to append to; created if missing (default: %(default)s)",
    )
    parser.set_defaults(run=run_import)


def run_import(arguments: argparse.Namespace) -> int:
    """Run ``hbtvm log import``."""
    trials = files.existing(arguments.trials, "an archive of trials")
    times = [files.existing(path, "a file of times") for path in arguments.times]
    log = files.tuning_log(arguments.log)

    from hbtvm.trials import add_times

    done = add_times(trials, *times, log=log)
    files.print_notes(*done.notes)
    parts = [f"{count(done.records, 'record')} added"]
    if done.failed:
        parts.append(f"{done.failed:,} of them failed")
    if done.known:
        parts.append(f"{done.known:,} were there already")
    if done.skipped:
        parts.append(f"{count(done.skipped, 'unreadable line')} left out")
    print_line(f"{log}: {', '.join(parts)}")
    return 0
