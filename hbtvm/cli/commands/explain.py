"""``hbtvm explain``: contributions of columns to the score of each row of a file."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hbtvm import __version__
from hbtvm.cli import files
from hbtvm.cli.arguments import (
    UsageError,
    add_dialect,
    add_trust,
    examples,
    loaded,
    names,
    paragraphs,
    trust_of,
    whole,
)
from hbtvm.cli.rows.text_in import STANDARD, shown
from hbtvm.errors import InputError

if TYPE_CHECKING:
    from hbtvm.cli.rows.data_in import Data
    from hbtvm.runtime.explaining.explanation import Explanation
    from hbtvm.runtime.model import Model

_DESCRIPTION = """
Explain the score of each row of DATA: how much each column contributes to it (Shapley values). The base value
plus the contributions of a row are its score. Neither the training library nor a compiler is needed.

A package that was compiled with --explain holds code that computes exact contributions. For others, name a
file of --background rows, such as a hundred of the training data: columns that are not known take the values
of its rows. Contributions are then estimated from --samples orders of the columns, or exact if there are few
columns.

OUT has a row for each row of DATA: the base value, and a column for each of the model's columns. With --top,
it has the strongest reasons only: the column, its value and its contribution, in this order. DATA is as for
hbtvm predict; OUT is .csv, .csv.gz, .parquet (with pyarrow) or .jsonl (an object per row).
"""

_SHOWN = 2000
"""Most rows of a page."""


def add_parser(commands: Any) -> None:
    """Add the command to the main parser's subparsers."""
    parser = commands.add_parser(
        "explain",
        help="explain the scores of a compiled model",
        description=paragraphs(_DESCRIPTION),
        epilog=examples(
            ("hbtvm explain model.tar rows.csv -o reasons.parquet", "contributions of all columns"),
            (
                "hbtvm explain model.tar rows.csv --background train.csv --top 3",
                "print the three strongest reasons of each row",
            ),
            (
                "hbtvm explain model.tar rows.csv --top 3 --sign negative --keep id -o notices.csv",
                "what lowered each score",
            ),
            ("hbtvm explain model.tar rows.csv --page reasons.html --row 7", "charts for the browser"),
        ),
    )
    parser.add_argument("package", metavar="MODEL.tar", help="package that hbtvm tune or compile wrote")
    parser.add_argument(
        "data",
        metavar="DATA",
        help="rows to explain: .csv, .csv.gz, .npy, .npz, .parquet, .arrow or .json, or - for CSV on "
        "standard input",
    )
    parser.add_argument(
        "-o",
        "--out",
        metavar="OUT",
        help="where to write: .csv, .csv.gz, .parquet or .jsonl (default: -, print CSV, without --page)",
    )
    parser.add_argument("--top", type=whole(1), metavar="K", help="write the K strongest reasons of each row")
    parser.add_argument(
        "--sign",
        choices=("any", "positive", "negative"),
        default="any",
        metavar="SIGN",
        help="with --top, only reasons that raise the score (positive) or lower it (negative) (default: any)",
    )
    parser.add_argument(
        "--output",
        choices=("raw", "decision", "proba", "score", "prediction"),
        metavar="KIND",
        help="score to explain, if the model has it: raw (raw scores), decision (decision function), proba "
        "(probabilities), score (anomaly scores) or prediction (of regressors) (default: the first of these)",
    )
    parser.add_argument(
        "--class",
        dest="label",
        metavar="NAME",
        help="explain the score of this class (default: all; with --top and on a page, a row's highest)",
    )
    parser.add_argument(
        "--keep", type=names, default=(), metavar="NAMES", help="columns that go into OUT, in front"
    )
    parser.add_argument(
        "--drop",
        type=names,
        default=(),
        metavar="NAMES",
        help="columns to leave out of DATA and the background, such as the label, with commas between",
    )
    group = parser.add_argument_group("estimates", "for packages without reasons, and for other outputs")
    group.add_argument("--background", metavar="FILE", help="file of rows to compare with; up to 65,536 rows")
    group.add_argument(
        "--samples",
        type=whole(3),
        metavar="N",
        help="orders of the columns to draw for each row; errors shrink with its root (default: 128)",
    )
    group.add_argument("--seed", type=whole(0), default=0, metavar="N", help="seed of the draws (default: 0)")
    group.add_argument("--errors", action="store_true", help="also write the standard errors, without --top")
    group = parser.add_argument_group("page", "a self-contained HTML page")
    group.add_argument(
        "--page",
        metavar="PAGE.html",
        help=f"draw the first {_SHOWN:,} rows' contributions, and those of one row",
    )
    group.add_argument("--row", type=whole(1), default=1, metavar="N", help="that row, from 1 (default: 1)")
    add_dialect(parser)
    parser.add_argument(
        "--threads", type=whole(1), metavar="N", help="threads to use (default: as many as it was tuned for)"
    )
    parser.add_argument("--device", metavar="DEVICE", help="GPU to use, such as cuda:1 (default: the first)")
    add_trust(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from hbtvm.cli.rows.reasons import Page, Table

    package = files.existing(arguments.package, "a package")
    trust = trust_of(arguments.sha256, arguments.allowed_signers)
    path, out, page_path = _paths(arguments)
    model = loaded(package, trust, arguments.threads, arguments.device)
    if model.package.recursion is not None:
        raise UsageError(f"{package} is a recursive model, whose structures have no columns to explain")
    background = _background(arguments, model)
    with _data(arguments, model, path, arguments.keep) as data:
        explained = _explained(arguments, model, shown(path), background, data.kept_blocks())
        first = next(explained, None)
        if first is None:
            raise UsageError(f"{shown(path)}: there are no rows to explain")
        blocks: Iterable[tuple[Explanation, list[Any]]] = itertools.chain([first], explained)
        page = None if page_path is None else Page(arguments.row, _SHOWN)
        if page is not None:
            blocks = page.passing(blocks)
        if arguments.out is None and page is not None:
            for _ in blocks:
                pass
        else:
            table = Table(first[0], arguments.top, arguments.sign, arguments.errors, arguments.keep)
            table.write(out, blocks)
    if page is not None and page_path is not None:
        text = page.render(Path(arguments.package).name, shown(path), f"Made by hbtvm {__version__}.")
        with files.replacing(page_path) as temporary:
            temporary.write_text(text, encoding="utf-8")
    return 0


def _paths(arguments: argparse.Namespace) -> tuple[Path, Path | None, Path | None]:
    """Return the paths of rows, table and page."""
    from hbtvm.cli.rows.data_out import check_suffix

    path = Path(STANDARD)
    if Path(arguments.data).is_dir():
        raise UsageError(f"{arguments.data} is a folder; explain its files one by one")
    if arguments.data != STANDARD:
        path = files.existing(arguments.data, "rows to explain")
    out = page = None
    if arguments.out not in (None, STANDARD):
        check_suffix(arguments.out)
        out = files.writable(arguments.out)
        if out.suffix.lower() == ".npy":
            raise UsageError(f"{out} is an array, and reasons are a table; write .csv, .parquet or .jsonl")
        if out.exists() and path.exists() and out.samefile(path):
            raise UsageError(f"{out}: the reasons would replace the data")
    if arguments.page is not None:
        if Path(arguments.page).suffix not in (".html", ".htm"):
            raise UsageError(f"{arguments.page}: the name of a page must end in .html")
        page = files.writable(arguments.page)
    if arguments.sign != "any" and arguments.top is None:
        raise UsageError("--sign needs --top")
    if arguments.errors and (arguments.top is not None or arguments.background is None):
        raise UsageError("--errors needs --background, and goes without --top")
    if arguments.samples is not None and arguments.background is None:
        raise UsageError("--samples needs --background")
    return path, out, page


def _data(arguments: argparse.Namespace, model: Model, path: Path, keep: Sequence[str]) -> Data:
    """Open a file of rows; of two files, only one may have the columns to drop or to keep."""
    from hbtvm.cli.rows.data_in import Data
    from hbtvm.runtime.feeds.file_columns import columns_of

    return Data(
        path,
        model.package.input,
        header=arguments.header,
        drop=() if arguments.background else arguments.drop,
        drop_present=(*arguments.drop, *arguments.keep) if arguments.background else (),
        keep=keep,
        delimiter=arguments.delimiter,
        na=arguments.na,
        pipeline=None if model.pipeline is None else columns_of(model.pipeline),
    )


def _background(arguments: argparse.Namespace, model: Model) -> Any:
    """Return the rows of the background; None without one."""
    if arguments.background is None:
        return None
    path = files.existing(arguments.background, "rows to compare with")
    with _data(arguments, model, path, ()) as data:
        blocks = data.blocks()
        rows = next(blocks, None)
        if rows is None:
            raise UsageError(f"{path}: there are no rows to compare with")
        if next(blocks, None) is not None:
            raise UsageError(f"{path}: there are too many rows to compare with; a few hundred are enough")
    return rows


def _explained(
    arguments: argparse.Namespace,
    model: Model,
    path: str,
    background: Any,
    blocks: Iterable[tuple[Any, list[Any]]],
) -> Iterator[tuple[Explanation, list[Any]]]:
    """Yield explanations and kept columns block by block; errors name the rows' place in the file."""
    done = 0
    for block, kept in blocks:
        try:
            explanation = model.explain(
                block, background, arguments.samples, arguments.seed, arguments.output
            )
            if arguments.label is not None:
                if explanation.output_names is None:
                    raise UsageError(f"--class {arguments.label}: there is only one score to explain")
                explanation = explanation[..., arguments.label]
        except InputError as error:
            if error.row is None:
                raise
            raise InputError(f"{path}: {error.counted(done)}") from error
        done += len(explanation)
        yield explanation, kept
