"""``hbtvm compile``: package a model at once, without a search."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hbtvm.cli import files
from hbtvm.cli.arguments import (
    DEFAULT_LOG,
    UsageError,
    add_build_options,
    build_options,
    examples,
    paragraphs,
)
from hbtvm.cli.show import print_facts
from hbtvm.cli.structures.options import (
    add_cell_options,
    add_structure_options,
    data_name,
    model_of,
    options_of,
    with_words,
)
from hbtvm.errors import PackageError
from hbtvm.words.quantities import count

if TYPE_CHECKING:
    from hbtvm.runtime.package.entry import Package

_DESCRIPTION = """
Compile a trained model to a package within seconds. If the tuning log has measurements of models of the same
shape on the same target, the fastest schedule is used, else a default.

Only --overwrite replaces a tuned package by a package with fewer tuned kernels.
"""

_MEASURED = {"tuned", "log"}  # origins of schedules that were measured for this model's shape

_EXAMPLES = (
    ("hbtvm compile model.pkl", "writes model.tar here"),
    ("hbtvm compile retrained.pkl --log team.jsonl", "with the schedule of a tuned model of the same shape"),
    (
        """hbtvm compile model.txt --target '{"kind": "llvm", "mcpu": "x86-64-v3"}'""",
        "for other machines, with AVX2",
    ),
    (
        """hbtvm compile model.txt --target '{"kind": "llvm", "mtriple": "aarch64-linux-gnu"}'""",
        "for 64-bit Arm, with Debian's cross compiler",
    ),
)

_MORE_EXAMPLES = (
    ("hbtvm compile sentiment.rec", "a recursive model"),
    (
        "hbtvm compile cell.pt2 --children any --state h,c --reduce sum --readout mean:h",
        "a cell that torch exported; predicts the mean of its state over all nodes",
    ),
)


def add_parser(commands: Any) -> None:
    """Add the command to the main parser's subparsers."""
    parser = commands.add_parser(
        "compile",
        help="package a model at once, without a search",
        description=paragraphs(_DESCRIPTION),
        epilog=examples(*_EXAMPLES),
        all_epilog=examples(*_EXAMPLES, *_MORE_EXAMPLES),
    )
    add_build_options(parser)
    parser.add_argument(
        "--log",
        metavar="PATH",
        help=f"tuning log with schedules to use (default: {DEFAULT_LOG}, if it exists)",
    )
    parser.add_argument(
        "--overwrite", action="store_true", help="replace a package that has more tuned kernels"
    )
    add_structure_options(parser, sample=True)
    add_cell_options(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    files.existing(arguments.model, "a trained model")
    out = files.package_path(arguments.out, arguments.model)
    tuned = 0 if arguments.overwrite else _tuned(out)
    log = Path(DEFAULT_LOG) if arguments.log is None else files.existing(arguments.log, "a tuning log")
    used = log if log.is_file() else None
    if used is not None:
        files.read_log(str(used))

    recursive = with_words(arguments, model_of(arguments, arguments.model))
    options = {**build_options(arguments), **options_of(arguments, recursive)}

    from hbtvm import api
    from hbtvm.measuring.calls import add_call_times

    model = api.compile(recursive or arguments.model, log=used, **options)
    if tuned and tuned > (now := _count(model.package)):
        raise UsageError(
            f"{out}: this package has {count(tuned, 'tuned kernel')}, and the new package would have "
            f"{now or 'none'}; give another name with -o, replace it with --overwrite, or tune with hbtvm "
            "tune"
        )
    add_call_times(model)
    files.save(model, out)
    print_facts(
        {
            "log": str(used) if used else "none; hbtvm tune finds faster code",
            "package": f"{out} ({out.stat().st_size / 2**20:.1f} MB)",
            "next": f"hbtvm predict {out} {data_name(recursive)} -o OUT.csv",
        }
    )
    return 0


def _tuned(path: Path) -> int:
    """Count the tuned kernels of a package, without running its code; 0 for other files."""
    from hbtvm.runtime.package.file import read

    if not path.exists():
        return 0
    try:
        return _count(read(path))
    except PackageError:
        return 0


def _count(package: Package) -> int:
    return sum(origin in _MEASURED for origin in package.tuning.get("origins", ()))
