"""``hbtvm tune``: search for a model's fastest code, and package it."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hbtvm.cli import files
from hbtvm.cli.advanced import add_search_options, search_options
from hbtvm.cli.arguments import (
    DEFAULT_LOG,
    add_build_options,
    build_options,
    examples,
    paragraphs,
    seconds,
    whole,
)
from hbtvm.cli.recursive import (
    add_cell_options,
    add_structure_options,
    data_name,
    model_of,
    options_of,
    with_words,
)
from hbtvm.cli.show import print_line
from hbtvm.cli.signals import StopSignals, lasting, silence
from hbtvm.cli.trials import export_trials

if TYPE_CHECKING:
    from hbtvm.api import Search
    from hbtvm.recursive.model import Model
    from hbtvm.tuning.progress import Progress

_FAILED = 1

_DESCRIPTION = """
Search for the fastest code for a trained model on a target, and write it as one package that predicts
without the training library and without a compiler.

Every measurement goes to the tuning log at once. The same command again carries on where it stopped,
after Ctrl-C or a crash too, and other models tuned with the same log start from what it teaches.

Ctrl-C stops the search, packages the best so far, and ends with status 0; with 130 where nothing was
measured yet. Ctrl-C once more gives up packaging, with status 130: the log still has everything.

SIGTERM (docker stop, Slurm) and SIGHUP (a closed terminal) do the same; where nothing is packaged, the
status is then 143 or 129. After nohup, SIGHUP stays ignored.
"""


def add_parser(commands: Any) -> None:
    """Add the command to the main parser's subparsers."""
    parser = commands.add_parser(
        "tune",
        help="search for the fastest code for a model, and package it",
        description=paragraphs(_DESCRIPTION),
        epilog=examples(
            ("hbtvm tune model.pkl", "with what is usual; writes model.tar and hbtvm-tuning.jsonl here"),
            ("hbtvm tune model.txt --time-budget 600 -o fast.tar", "for ten minutes at most"),
            ("hbtvm tune model.json --batch-size 1 --threads 1", "for one row at a time on one thread"),
            (
                "hbtvm tune --log ~/team.jsonl other.pkl",
                "learn from what earlier models taught, and add to it",
            ),
            ("hbtvm tune model.pkl --target cuda --device cuda:1", "for this machine's second GPU"),
            (
                "hbtvm tune model.pkl --rpc-tracker 10.0.0.5:9190 --rpc-key zen4",
                "measure on all devices that a tracker lends",
            ),
            (
                "hbtvm tune model.pkl --export trials.tar --target "
                """'{"kind": "cuda", "arch": "sm_90", "cores": 132}'""",
                "build candidates here, for hbtvm measure on a machine with such a GPU",
            ),
            (
                "hbtvm tune model.pkl --strategy gemm,bitvector --trials 2000",
                "a long search among two strategies",
            ),
            ("hbtvm tune model.pkl --preset autotvm", "search as AutoTVM's paper does, to compare"),
            (
                "hbtvm tune sentiment.rec --sample dev.txt --labels drop --vocabulary words.txt",
                "a recursive model, measured on trees of one's own",
            ),
            (
                "hbtvm tune cell.pt2 --children 2 --state h,c --batch-size 1,10",
                "a recursive model whose cell torch exported, for calls of 1 and 10 structures",
            ),
        ),
    )
    add_build_options(parser)
    parser.add_argument(
        "--trials",
        type=whole(1),
        metavar="N",
        help="candidates to try in all, those in the log included (default: 240, in at most 100 seconds; "
        "no limit with --time-budget)",
    )
    parser.add_argument(
        "--time-budget",
        type=seconds,
        metavar="SECONDS",
        help="search for so long at most (default: no limit with --trials)",
    )
    parser.add_argument(
        "--log",
        default=DEFAULT_LOG,
        metavar="PATH",
        help="tuning log to carry on from and to add to; made where missing (default: %(default)s)",
    )
    parser.add_argument(
        "--no-transfer", action="store_true", help="don't learn from other models' measurements"
    )
    parser.add_argument(
        "--seed",
        type=whole(0),
        default=0,
        metavar="N",
        help="with the same seed, log and times the same candidates are tried (default: %(default)s)",
    )
    parser.add_argument(
        "--rpc-tracker",
        metavar="HOST:PORT",
        help="measure on the devices of this TVM RPC tracker, all at once, with --threads 1",
    )
    parser.add_argument("--rpc-key", metavar="KEY", help="which of the tracker's devices to use")
    parser.add_argument(
        "--export",
        metavar="TRIALS.tar",
        help="measure nothing here: build candidates (240, or --trials) for hbtvm measure on another "
        "machine, into this archive; hbtvm log import then adds its times to the log, and the same command "
        "again plans a second round",
    )
    add_structure_options(parser, sample=True)
    add_cell_options(parser)
    add_search_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command.

    Returns
    -------
    0; 1 where the log could not be written, and the best so far was packaged; or, where it was stopped and
    nothing was packaged, 130 after Ctrl-C, 143 after SIGTERM and 129 after SIGHUP.
    """
    files.existing(arguments.model, "a trained model")
    if arguments.export is not None:
        return export_trials(arguments)
    out = files.package_path(arguments.out, arguments.model)
    log = files.tuning_log(arguments.log, noted=False)  # the report has the note
    recursive = with_words(arguments, model_of(arguments, arguments.model))
    options = {**build_options(arguments, recursive is not None), **options_of(arguments, recursive)}
    with StopSignals() as signals:
        return _run(arguments, recursive, options, out, log, signals)


def _run(
    arguments: argparse.Namespace,
    recursive: Model | None,
    options: dict[str, Any],
    out: Path,
    log: Path,
    signals: StopSignals,
) -> int:
    """Search, package and report, while signals ask to stop."""
    messages = lasting(sys.stderr)

    from hbtvm.cli.live import watcher

    try:
        with watcher(Path(arguments.model).name, messages) as progress:
            search = _search(arguments, recursive or arguments.model, options, log, signals.checked(progress))
        if search.result.interrupted and not any(group.best for group in search.result.groups.values()):
            raise KeyboardInterrupt
        again = "nothing is lost: the same command again packages what the log has, without measuring anew"
        files.save(search.model, out, again if log.is_file() else "")
    except KeyboardInterrupt:
        again = f"; {log} keeps what was measured, the same command carries on" if log.is_file() else ""
        how = "interrupted" if signals.received is None else f"stopped by {signals.name}"
        print_line(f"hbtvm: {how}, and nothing was packaged{again}", messages)
        return signals.status

    from hbtvm.cli.summary import print_report

    stopped = signals.received is not None and search.result.interrupted
    if stopped:
        print_line(f"hbtvm: stopped by {signals.name}; {out} holds the best so far", messages)
    try:
        print_report(
            search.result,
            out,
            log,
            search.copies,
            signals.name,
            search.sample,
            data_name(recursive),
        )
        sys.stdout.flush()
    except OSError:
        if signals.received is None:
            raise
        silence(sys.stdout)  # the terminal was closed: nobody is left to read the report
    if search.result.log_error is not None:
        print_line(f"hbtvm: error: {search.result.log_error}; {out} holds the best so far", messages)
        return _FAILED
    return 0


def _search(
    arguments: argparse.Namespace, model: Any, options: dict[str, Any], log: Path, progress: Progress
) -> Search:
    from hbtvm import api  # here, as it takes a second or two, and something is shown meanwhile

    return api.search(
        model,
        trials=arguments.trials,
        time_budget=arguments.time_budget,
        log=log,
        transfer=not arguments.no_transfer,
        seed=arguments.seed,
        progress=progress,
        rpc_tracker=arguments.rpc_tracker,
        rpc_key=arguments.rpc_key,
        **options,
        **search_options(arguments),
    )
