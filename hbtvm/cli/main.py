"""Entry point: run the command, and turn errors into a sentence and an exit status.

===  ==========================================================================
0    done
1    the machine failed: compiling, the tuning log, a full disk, ...; or check found a difference
2    the command line, the model, the data or the package is wrong
129  tune stopped by SIGHUP before there was a result (as shells do)
130  stopped by Ctrl-C before there was a result, or measure at any time (as shells do)
141  the reader of the output closed it (as shells do)
143  tune stopped by SIGTERM before there was a result (as shells do)
===  ==========================================================================
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from hbtvm import __version__
from hbtvm.cli.arguments import UsageError, examples
from hbtvm.cli.commands import (
    check,
    completion,
    explain,
    export,
    inspect,
    log,
    measure,
    predict,
    report,
    serve,
    tune,
)
from hbtvm.cli.commands import compile as compile_command
from hbtvm.cli.parser import Parser
from hbtvm.cli.show import print_line
from hbtvm.errors import HbtvmError, InputError, ModelError, PackageError, TargetError, explained
from hbtvm.tuning.measuring.start import start_without_torch

OK, FAILED, WRONG, INTERRUPTED, NO_READER = 0, 1, 2, 130, 141

_USER_ERRORS = (UsageError, ModelError, InputError, TargetError, PackageError)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    `argv`: arguments without the program's name; by default, the process's.
    Returns the exit status (see this module's table).
    """
    _print_anything()
    start_without_torch()
    try:
        try:
            arguments = make_parser().parse_args(argv)
            status: int = arguments.run(arguments)
            sys.stdout.flush()  # shows a full disk or a lost reader here
            return status
        except BrokenPipeError:
            _forget_output()
            return NO_READER
    except SystemExit as done:  # of argparse: --help, --version, or a usage error
        return int(done.code or 0)
    except KeyboardInterrupt:
        return _fail("interrupted", INTERRUPTED)
    except Exception as error:
        _forget_output()
        if os.environ.get("HBTVM_DEBUG") == "1":
            raise
        if isinstance(error, ModuleNotFoundError):
            error = explained(error) or error
        return _fail(f"error: {_sentence(error)}", WRONG if isinstance(error, _USER_ERRORS) else FAILED)


def make_parser() -> Parser:
    """Return the parser of the command line."""
    parser = Parser(
        prog="hbtvm",
        description="Compile trained models (scikit-learn, XGBoost, LightGBM, ONNX-ML, and recursive models "
        "over trees and graphs) to fast native code, tuned for your machine.",
        epilog=examples(
            ("hbtvm tune model.pkl", "search for the fastest code, and write model.tar"),
            (
                "hbtvm predict model.tar data.csv",
                "predict; needs neither the training library nor a compiler",
            ),
            ("hbtvm serve model.tar", "predict for others, over HTTP"),
            ("hbtvm inspect model.tar", "describe a package, with its measured times"),
            ("hbtvm compile model.pkl", "write model.tar at once, without a search"),
            ("hbtvm export model.tar -o lib", "write a library for C"),
            ("hbtvm tune sentiment.rec", "a recursive model, whose rows are trees or other structures"),
            ("hbtvm report hbtvm-tuning.jsonl", "see what a search did, in a browser"),
            ("hbtvm help tune", "the options of a command"),
            footer="Errors are one sentence and a status: 1 if the machine failed, 2 if the input is wrong. "
            "Set HBTVM_DEBUG=1 to see a traceback.",
        ),
    )
    parser.add_argument("--version", action="version", version=f"hbtvm {__version__}")
    parser.set_defaults(run=lambda _: _print_help(parser))
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")
    for command in (tune, compile_command, predict, explain, check, serve, export):
        command.add_parser(commands)
    for command in (measure, inspect, log, report):
        command.add_parser(commands)
    completion.add_parser(commands, parser)
    _add_help(commands, parser)
    return parser


def _add_help(commands: Any, program: Parser) -> None:
    parser = commands.add_parser(
        "help",
        help="describe a command",
        description="Describe a command, or list the commands.",
        epilog=examples(("hbtvm help tune", "as hbtvm tune --help"), ("hbtvm help log best", "an action")),
    )
    parser.add_argument("command", metavar="COMMAND", nargs="*", help="a command, and its action if it has")
    parser.set_defaults(run=lambda arguments: _print_help(program, arguments.command))


def _print_help(parser: Parser, command: Sequence[str] = ()) -> int:
    parser.parse_args([*command, "--help"])  # exits
    return OK


def _print_anything() -> None:
    """Replace characters that the terminal's encoding lacks, such as µ."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _forget_output() -> None:
    """Discard output that can't be written, so that Python does not report it again at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _fail(message: str, status: int) -> int:
    # `print_line` escapes control characters that the message quotes from a file.
    print_line(f"hbtvm: {message}", sys.stderr)
    return status


def _sentence(error: Exception) -> str:
    if isinstance(error, HbtvmError):
        return str(error)
    if isinstance(error, MemoryError):
        return "there is not enough memory"
    if isinstance(error, OSError):  # a LogError has its sentence and no number
        where = f"{error.filename}: " if error.filename else ""
        return f"{where}{error.strerror or error}"
    first = next(iter(str(error).splitlines()), "no message")
    return f"this is a bug in hbtvm, {type(error).__name__}: {first} (HBTVM_DEBUG=1 shows where)"
