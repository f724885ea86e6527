"""``hbtvm report``: write a tuning log as a page for the browser."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from hbtvm import __version__
from hbtvm.cli import files
from hbtvm.cli.arguments import UsageError, examples, paragraphs
from hbtvm.cli.commands.check import add_comparison_options, rows_of
from hbtvm.cli.comparison import compared
from hbtvm.cli.show import print_line
from hbtvm.comparison.result import speedup
from hbtvm.words.quantities import count

_DESCRIPTION = """
Write a tuning log as one self-contained HTML page: default against tuned schedules, tuning curves, predicted
against measured times, trials by strategy, failures with examples, the winning schedules side by side,
machines and versions.

With a package and its model, the page also compares the package with the model's library, as hbtvm check
does.
"""


def add_parser(commands: Any) -> None:
    """Add the command to the main parser's subparsers."""
    parser = commands.add_parser(
        "report",
        help="show a tuning log as a page for the browser",
        description=paragraphs(_DESCRIPTION),
        epilog=examples(
            ("hbtvm report hbtvm-tuning.jsonl", "writes hbtvm-tuning.html here"),
            ("hbtvm report team.jsonl -o report.html", "under another name"),
            (
                "hbtvm report hbtvm-tuning.jsonl --package model.tar --model model.txt",
                "with the package's speed against the library's, measured now",
            ),
        ),
    )
    parser.add_argument("log", metavar="LOG", help="tuning log")
    parser.add_argument(
        "-o",
        "--out",
        metavar="REPORT.html",
        help="page to write (default: the log's name with .html, in the current folder)",
    )
    parser.add_argument("--package", metavar="MODEL.tar", help="package to compare; needs --model")
    parser.add_argument("--model", metavar="MODEL", help="file of the package's model")
    add_comparison_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    path = Path(arguments.log)
    read = files.read_log(arguments.log)
    if not read.records:
        raise UsageError(f"{path}: there is no tuning record in it to report on")
    if (arguments.package is None) != (arguments.model is None):
        raise UsageError("--package and --model go together: a package is compared with its model's library")
    if arguments.package is not None:
        files.existing(arguments.package, "a package")
        model_path = files.existing(arguments.model, "a trained model")
        from hbtvm.comparison.process import require_trust
        from hbtvm.frontends.files import recursive_kind

        if recursive_kind(model_path) is not None:
            raise UsageError(f"{model_path}: a recursive model has no library to compare with")
        require_trust(model_path, arguments.trust)
    out = _page_path(arguments.out, path)

    from hbtvm.compiler.candidates.tasks import describe
    from hbtvm.compiler.selection.choose import default_record
    from hbtvm.cost_model.create import maker
    from hbtvm.report.page import render
    from hbtvm.report.ranking import validate
    from hbtvm.report.story import tell
    from hbtvm.tuning.choices import Choices

    story = tell(read.records, read.skipped, default_record)
    comparison = None
    if arguments.package is not None:
        from hbtvm.runtime.model import load

        model = load(arguments.package)
        X = rows_of(arguments, model)
        comparison = compared(model, model_path, X, trust=arguments.trust, timeout=arguments.timeout)
    page = render(
        story,
        f"Tuning log {path.name}",
        validate(
            story.chapters, describe, lambda frame: maker(Choices().cost_model, frame=lambda: frame)([])
        ),
        comparison,
        f"Made by hbtvm {__version__}.",
    )
    with files.replacing(out) as temporary:
        temporary.write_text(page, encoding="utf-8")
    records = f"{count(len(story.records), 'record')} of {count(len(story.chapters), 'workload')}"
    print_line(f"{out}: {records} ({out.stat().st_size / 1024:,.0f} KB)")
    if comparison is not None:
        for timing in comparison.timings:
            rows = count(timing.rows, "row")
            print_line(f"{rows} in a call: {speedup(timing.speedup)} as fast as the library")
        print_line(comparison.verdict)
    return 0


def _page_path(name: str | None, log: Path) -> Path:
    if name is None:
        return files.writable(Path(log.stem + ".html"))
    # A mistake such as "-o team.jsonl" must not overwrite that log.
    if Path(name).suffix not in (".html", ".htm"):
        raise UsageError(f"{name}: the name of a page must end in .html")
    return files.writable(name)
