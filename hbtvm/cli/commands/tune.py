"""``hbtvm tune``: search for a model's fastest code, and package it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hbtvm.cli import files
from hbtvm.cli.arguments import (
    add_build_options,
    build_options,
    examples,
    paragraphs,
)
from hbtvm.cli.commands.advanced import add_limits, add_machines, add_search_options, search_options
from hbtvm.cli.commands.trials import export_trials
from hbtvm.cli.show import print_line
from hbtvm.cli.signals import StopSignals, lasting, silence
from hbtvm.cli.structures.options import (
    add_cell_options,
    add_structure_options,
    data_name,
    model_of,
    options_of,
    with_words,
)

if TYPE_CHECKING:
    from hbtvm.api import Search

_FAILED = 1

_DESCRIPTION = """
Search for a trained model's fastest code on a target, and write it as a package that predicts without the
training library and without a compiler.

Every measurement goes to the tuning log at once. The same command resumes a run that ended, by Ctrl-C or a
crash too, and other models learn from the log.

Ctrl-C stops the search and packages the best so far.
"""

_STOPS = """
Ctrl-C exits with status 0 if the best so far was packaged, or 130 if nothing was measured. A second Ctrl-C
skips packaging, with status 130; the log keeps everything.

SIGTERM (docker stop, Slurm) and SIGHUP (a closed terminal) do the same, with status 143 or 129 if nothing is
packaged. After nohup, SIGHUP stays ignored.
"""

_EXAMPLES = (
    ("hbtvm tune model.pkl", "with the defaults; writes model.tar and hbtvm-tuning.jsonl here"),
    ("hbtvm tune model.txt --time-budget 10m -o fast.tar", "for ten minutes at most"),
    ("hbtvm tune model.json --batch-size 1 --threads 1", "for one row at a time on one thread"),
    ("hbtvm tune --log ~/team.jsonl other.pkl", "learn from earlier models' measurements, and add to them"),
    ("hbtvm tune model.pkl --target cuda --device cuda:1", "for this machine's second GPU"),
)

_MORE_EXAMPLES = (
    (
        "hbtvm tune model.pkl --rpc-tracker 10.0.0.5:9190 --rpc-key zen4",
        "measure on all devices of a tracker",
    ),
    (
        "hbtvm tune model.pkl --export trials.tar --target "
        """'{"kind": "cuda", "arch": "sm_90", "cores": 132}'""",
        "build candidates here, for hbtvm measure on a machine with such a GPU",
    ),
    ("hbtvm tune model.pkl --strategy gemm,bitvector --trials 2000", "a long search among two strategies"),
    ("hbtvm tune model.pkl --preset autotvm", "search as AutoTVM's paper does"),
    (
        "hbtvm tune sentiment.rec --sample dev.txt --labels drop --vocabulary words.txt",
        "a recursive model, measured on your trees",
    ),
    (
        "hbtvm tune cell.pt2 --children 2 --state h,c --batch-size 1,10",
        "a recursive model with a cell that torch exported, for 1 and 10 structures per call",
    ),
)


def add_parser(commands: Any) -> None:
    """Add the command to the main parser's subparsers."""
    parser = commands.add_parser(
        "tune",
        help="search for the fastest code for a model, and package it",
        description=paragraphs(_DESCRIPTION),
        all_description=paragraphs(f"{_DESCRIPTION}{_STOPS}"),
        epilog=examples(*_EXAMPLES),
        all_epilog=examples(*_EXAMPLES, *_MORE_EXAMPLES),
    )
    add_build_options(parser)
    add_limits(parser)
    closing = parser.add_rare_group("comparison with the library, at the end")
    closing.add_argument(
        "--no-check",
        dest="check",
        action="store_false",
        help="do not compare the package with the library at the end",
    )
    closing.add_argument(
        "--trust",
        action="store_true",
        help="load the model's pickle with its library, for the comparison at the end: a pickle can run any "
        "program",
    )
    add_machines(parser)
    add_structure_options(parser, sample=True)
    add_cell_options(parser)
    add_search_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command.

    Returns 0; 1 if the log could not be written, and the best so far was packaged; or, if nothing was
    packaged, 130 after Ctrl-C, 143 after SIGTERM and 129 after SIGHUP.
    """
    files.existing(arguments.model, "a trained model")
    if arguments.export is not None:
        return export_trials(arguments)
    out = files.package_path(arguments.out, arguments.model)
    log = files.tuning_log(arguments.log, noted=False)  # the report has the note
    recursive = with_words(arguments, model_of(arguments, arguments.model))
    options = {
        "log": log,
        **build_options(arguments),
        **options_of(arguments, recursive),
        **search_options(arguments),
    }
    messages = lasting(sys.stderr)

    from hbtvm.cli.progress.live import watcher

    with StopSignals() as signals:
        try:
            with watcher(Path(arguments.model).name, messages) as progress:
                from hbtvm import api  # takes a second or two, while the display is up

                search = api.search(
                    recursive or arguments.model, progress=signals.checked(progress), **options
                )
            if search.result.interrupted and not any(group.best for group in search.result.groups.values()):
                raise KeyboardInterrupt
            again = "the log keeps everything: the same command packages it without measuring again"
            files.save(search.model, out, again if log.is_file() else "")
        except KeyboardInterrupt:
            again = f"; {log} keeps the measurements, and the same command resumes" if log.is_file() else ""
            how = "interrupted" if signals.received is None else f"stopped by {signals.name}"
            print_line(f"hbtvm: {how}, and nothing was packaged{again}", messages)
            return signals.status
        status = _report(search, out, log, signals, data_name(recursive))
    if arguments.check and recursive is None and not search.result.interrupted and status == 0:
        from hbtvm.cli.comparison import print_closing

        model, path = search.model, Path(arguments.model)
        print_closing(model, path, out, trust=arguments.trust, untuned=search.untuned)
    return status


def _report(search: Search, out: Path, log: Path, signals: StopSignals, data: str) -> int:
    """Print the summary, while signals ask to stop; return the exit status."""
    from hbtvm.cli.progress.summary import print_report

    messages, result = lasting(sys.stderr), search.result
    if signals.received is not None and result.interrupted:
        print_line(f"hbtvm: stopped by {signals.name}; {out} holds the best so far", messages)
    try:
        print_report(result, out, log, search.copies, signals.name, search.sample, data, search.calls)
        sys.stdout.flush()
    except OSError:
        if signals.received is None:
            raise
        silence(sys.stdout)  # the terminal was closed
    if result.log_error is not None:
        print_line(f"hbtvm: error: {result.log_error}; {out} holds the best so far", messages)
        return _FAILED
    return 0
