"""``hbtvm check``: compare a package with the library that trained its model."""

from __future__ import annotations

import argparse
from typing import Any

from hbtvm.cli import files
from hbtvm.cli.arguments import (
    add_dialect,
    add_trust,
    examples,
    loaded,
    names,
    paragraphs,
    seconds,
    trust_of,
    whole,
)
from hbtvm.cli.comparison import MOST_ROWS, as_json, compared, print_comparison
from hbtvm.cli.show import print_json

AGREES, DIFFERS = 0, 1

_DESCRIPTION = """
Compare a package with its model's library on the same rows: every output that both have, row by row, and the
times of calls with one row, 100 rows and all rows.

The library runs in a process of its own, with the package's number of threads. It has to be installed.

Labels have to be equal, and numbers within 1e-5 of their column's largest (1e-12 for packages compiled with
--dtype float64). The status is 0 if all rows agree, 1 if outputs differ, and 2 if an input is wrong.
"""


def add_parser(commands: Any) -> None:
    """Add the command to the main parser's subparsers."""
    parser = commands.add_parser(
        "check",
        help="compare a package with its library: answers and times",
        description=paragraphs(_DESCRIPTION),
        epilog=examples(
            ("hbtvm check model.tar --model model.json --data rows.parquet", "on your rows"),
            ("hbtvm check model.tar --model model.pkl --trust --data rows.csv", "with a pickle of your own"),
            ("hbtvm check model.tar --model model.txt", "on random rows"),
            ("hbtvm check model.tar --model model.onnx --data rows.npy --json", "as JSON"),
        ),
    )
    parser.add_argument("package", metavar="MODEL.tar", help="package that hbtvm tune or compile wrote")
    parser.add_argument(
        "--model",
        metavar="MODEL",
        required=True,
        help="trained model: a file (.pkl .joblib .skops .json .ubj .txt .cbm .onnx) or a folder of MLflow, "
        "Spark or YDF",
    )
    add_comparison_options(parser)
    parser.add_argument(
        "--threads",
        type=whole(1),
        metavar="N",
        help="threads of the package and of the library (default: as many as the package was tuned for)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_trust(parser)
    parser.set_defaults(run=run)


def add_comparison_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a comparison with a library; `rows_of` reads those of the rows."""
    parser.add_argument(
        "--data",
        metavar="DATA",
        help="rows to compare: .csv, .npy, .npz, .parquet, .arrow or .json (default: random rows, for models "
        "of numbers and known categories)",
    )
    parser.add_argument(
        "--rows",
        type=whole(1),
        default=MOST_ROWS,
        metavar="N",
        help="compare the first N rows of DATA (default: %(default)s)",
    )
    add_dialect(parser)
    parser.add_argument(
        "--drop",
        type=names,
        default=(),
        metavar="NAMES",
        help="columns that are not features, with commas between, if the model has no column names",
    )
    parser.add_argument(
        "--trust",
        action="store_true",
        help="load the model's pickle with its library: a pickle can run any program, so trust only files of "
        "your own",
    )
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=300.0,
        metavar="SECONDS",
        help="longest call of the library (default: %(default)g)",
    )


def rows_of(arguments: argparse.Namespace, model: Any) -> Any:
    """Return the rows to compare; None for random rows."""
    if arguments.data is None:
        return None
    from hbtvm.cli.rows.whole import first_rows

    path = files.existing(arguments.data, "rows to compare")
    dialect = {name: getattr(arguments, name) for name in ("header", "delimiter", "na")}
    return first_rows(path, model, arguments.rows, drop=arguments.drop, **dialect)


def run(arguments: argparse.Namespace) -> int:
    """Run the command; return 0 if the outputs agree, else 1."""
    package = files.existing(arguments.package, "a package")
    path = files.existing(arguments.model, "a trained model")
    trust = trust_of(arguments.sha256, arguments.allowed_signers)

    from hbtvm.comparison.process import require_trust

    require_trust(path, arguments.trust)
    model = loaded(package, trust, arguments.threads)
    comparison = compared(
        model, path, rows_of(arguments, model), trust=arguments.trust, timeout=arguments.timeout
    )
    if arguments.json:
        print_json(as_json(comparison))
    else:
        print_comparison(comparison)
    return AGREES if comparison.agrees else DIFFERS
