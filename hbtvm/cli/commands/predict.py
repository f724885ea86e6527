"""``hbtvm predict``: predict the rows of a file block by block, in constant memory."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from hbtvm.cli.structures.options import add_structure_options, refuse_structures
from hbtvm.errors import InputError
from hbtvm.streaming.outputs import column_names, table_of

if TYPE_CHECKING:
    import numpy as np

    from hbtvm.runtime.model import Model

_DESCRIPTION = """
Predict each row of DATA with a compiled model. Files may have any size. Neither the training library nor a
compiler is needed.

A package is machine code that runs with your rights: use only packages that you trust, and pin them with
--sha256 or --allowed-signers. hbtvm inspect reads a package without running it.

The suffix sets the format of DATA and OUT: .csv, .csv.gz, .npy (a two-dimensional array), .parquet (with
pyarrow) or .jsonl (an object per row). DATA may also be .tsv, .npz (a sparse matrix that
scipy.sparse.save_npz wrote), .arrow or .feather (with pyarrow), .json or .ndjson; text may end in .gz. The
name - is CSV on standard input or output. In CSV an empty field is a missing value. Column names of file and
model must agree; a pipeline that selects columns by name finds them in any order and among others. OUT
appears when it is complete, or not at all. Errors count rows from 1 in every format, and a header is not a
row.

DATA may also be a folder of .parquet, .csv or .arrow files, with subfolders called name=value for columns.
OUT is then a folder with a file of predictions for each; the same command resumes a stopped run. Only
columns that the model uses are read.
"""

_STRUCTURES = """
A recursive model predicts a row for each structure, a tree, graph or sequence:

.txt, .trees: a structure per line, with brackets and words at leaves, (not (very good)), or words in a row
for sequences.

.jsonl (one per line) or .json (all in an array): nested lists, ["not", ["very", "good"]]; nested objects,
{"word": "not", "children": [...]}; or a list item per node, {"children": [[], [], [0, 1]], "inputs":
{"word": [3, 5, null]}}, with "parents": [2, 2, null] instead of "children" if you prefer.

.npz: arrays of the inputs by name, and child (nodes, places), or first and child, or parent; starts holds
the first node of each structure. Nodes are numbered through the file, and -1 means none.

For models that predict every node, a row begins with the numbers of its structure and node, from 0; children
come before their parents.
"""

_EXAMPLES = (
    ("hbtvm predict model.tar data.csv", "print predictions, as CSV"),
    ("hbtvm predict model.tar data.parquet -o predictions.parquet", "write them to a file"),
    ("hbtvm predict model.tar data.csv --output proba", "a column of probabilities for each class"),
    (
        "hbtvm predict model.tar train.csv --drop label --keep id",
        "drop a column, and copy another",
    ),
    ("hbtvm predict model.tar data.csv --delimiter ';' --na NA,null", "CSV of another dialect"),
    ("hbtvm predict model.tar -", "a filter, from standard input to standard output"),
    ("hbtvm predict model.tar rows.npy -o out.npy --threads 4", "with four threads"),
    ("hbtvm predict model.tar rows.npz -o out.npy", "sparse rows; absent values as in the library"),
    ("hbtvm predict model.tar sales/ -o scores/ --keep id", "a folder of files"),
    ("hbtvm predict model.tar sales/ -o scores/ --keep id --engine spark", "the same, with Spark"),
)

_MORE_EXAMPLES = (
    ("hbtvm predict sentiment.tar dev.txt --labels drop", "trees of a treebank, with a recursive model"),
    ("hbtvm predict plans.tar plans.jsonl --index", "structures of any kind, and their numbers"),
)


def add_parser(commands: Any) -> None:
    """Add the command to the main parser's subparsers."""
    parser = commands.add_parser(
        "predict",
        help="predict with a compiled model",
        description=paragraphs(_DESCRIPTION),
        all_description=paragraphs(f"{_DESCRIPTION}{_STRUCTURES}"),
        epilog=examples(*_EXAMPLES),
        all_epilog=examples(*_EXAMPLES, *_MORE_EXAMPLES),
    )
    parser.add_argument("package", metavar="MODEL.tar", help="package that hbtvm tune or compile wrote")
    parser.add_argument(
        "data",
        metavar="DATA",
        help="rows to predict: .csv, .csv.gz, .npy, .npz, .parquet, .arrow or .json, a folder, or - for "
        "CSV on standard input; structures: .txt, .json, .jsonl or .npz",
    )
    parser.add_argument(
        "-o",
        "--out",
        metavar="OUT",
        help="where to write: .csv, .csv.gz, .npy, .parquet or .jsonl (default: -, print CSV)",
    )
    parser.add_argument(
        "--output",
        choices=(
            "label",
            "proba",
            "raw",
            "decision",
            "score",
            "transform",
            "leaves",
            "trees",
            "contributions",
        ),
        metavar="KIND",
        help="what to predict, if the model has it: label (class labels), proba (probabilities), raw (raw "
        "scores), decision (decision function), score (anomaly scores), transform (columns of the last "
        "step), or, of packages compiled with --explain, leaves (each tree's leaf), trees (each tree's "
        "scores) or contributions (of each column to the raw scores) (default: the library's predict)",
    )
    parser.add_argument(
        "--drop",
        type=names,
        default=(),
        metavar="NAMES",
        help="columns to leave out, such as the label, with commas between",
    )
    parser.add_argument(
        "--keep",
        type=names,
        default=(),
        metavar="NAMES",
        help="columns that go into OUT unchanged, in front of the predictions, such as an id, with commas "
        "between",
    )
    add_dialect(parser)
    parser.add_argument(
        "--threads",
        type=whole(1),
        metavar="N",
        help="threads to use (default: as many as it was tuned for)",
    )
    parser.add_argument(
        "--device",
        metavar="DEVICE",
        help="GPU to predict on, such as cuda:1, for packages for GPUs (default: the first)",
    )
    add_trust(parser)
    group = parser.add_argument_group("folders", "of .parquet, .csv or .arrow files (with pyarrow)")
    group.add_argument(
        "--overwrite",
        action="store_true",
        help="replace predictions in OUT of another package, other options or other rows",
    )
    group = parser.add_argument_group("clusters", "for files that many machines read and write")
    group.add_argument(
        "--engine",
        choices=("dask", "ray", "spark"),
        metavar="NAME",
        help="predict with the workers of dask, ray or spark (pip install 'hbtvm[dask]' etc.); DATA is a "
        "folder or file of Parquet, CSV or Arrow, OUT a new folder",
    )
    group.add_argument(
        "--cluster",
        metavar="ADDRESS",
        help="address of dask's scheduler, ray, or spark's master (default: workers on this machine)",
    )
    add_structure_options(parser, sample=False).add_argument(
        "--index",
        action="store_true",
        help="begin each row with the numbers of structure and node; implied for models that predict all "
        "nodes, required if a graph has several roots",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from hbtvm.cli.rows.data_in import Data
    from hbtvm.cli.rows.data_out import check_suffix, writing
    from hbtvm.runtime.explaining.contributions import CONTRIBUTIONS, contribution_names, contributions
    from hbtvm.runtime.feeds.file_columns import columns_of
    from hbtvm.runtime.package.file import content

    package = files.existing(arguments.package, "a package")
    trust = trust_of(arguments.sha256, arguments.allowed_signers)
    if arguments.engine is not None:
        from hbtvm.cli.rows import engines

        refuse_structures(arguments, "no engine takes structures")
        to = None if arguments.out is None else Path(arguments.out)
        return engines.predict(arguments, content(package, trust)[0], Path(arguments.data), to)
    if arguments.cluster:
        raise UsageError("--cluster needs --engine")
    if Path(arguments.data).is_dir():
        from hbtvm.cli.rows import datasets

        refuse_structures(arguments, "folders hold no structures")
        return datasets.predict(arguments, content(package, trust)[0], Path(arguments.data))
    if arguments.overwrite:
        raise UsageError(f"--overwrite needs a folder, and {arguments.data} is a file")
    path = Path(STANDARD)
    if arguments.data != STANDARD:
        path = files.existing(arguments.data, "rows to predict")
    out = None
    if arguments.out not in (None, STANDARD):
        check_suffix(arguments.out)
        out = files.writable(arguments.out)
        if out.exists() and path.exists() and out.samefile(path):
            raise UsageError(f"{out}: the predictions would replace the data")
        if arguments.keep and out.suffix.lower() == ".npy":
            raise UsageError(f"--keep needs a table, and {out} is an array; write .csv or .parquet")

    from hbtvm.runtime.explained import VIEWS, lacking

    model = loaded(package, trust, arguments.threads, arguments.device)
    output, view, predicted = arguments.output, None, None
    if output == CONTRIBUTIONS:
        predicted = contribution_names(model)
        model, output = contributions(model), None
    spec = model.package.output
    available = (*spec.outputs, *(("transform",) if model.beside is not None else ()))
    if output == "transform" and (model.beside is not None or model.package.transforms):
        model, output = model.beside or model, None
        spec = model.package.output
    elif output == "score" and model.scores is not None:
        model = model.scores
        spec = model.package.output
    elif output in VIEWS:
        if output not in model.views:
            raise UsageError(f"--output {output}: {lacking(model.package, output)}".rstrip("."))
        model, output, view = model.views[output], None, output
    elif output not in (None, *available):
        has = ", ".join(available) or "only its prediction"
        raise UsageError(f"--output {output}: this {spec.kind} has {has}")
    if model.package.recursion is not None:
        from hbtvm.cli.structures.predict import predict

        return predict(model, path, out, output, arguments)
    refuse_structures(arguments, f"{package} is not a recursive model, so it takes no structures")
    columns = None if model.pipeline is None else columns_of(model.pipeline)
    with Data(
        path,
        model.package.input,
        header=arguments.header,
        drop=arguments.drop,
        keep=arguments.keep,
        delimiter=arguments.delimiter,
        na=arguments.na,
        pipeline=columns,
    ) as data:
        tables = _tables(model, shown(path), data.kept_blocks(), output)
        first = next(tables, None)
        if first is None:
            raise UsageError(f"{shown(path)}: there are no rows to predict")
        layout = model.package.parts.table
        if layout is not None and layout.names is not None:
            predicted = list(layout.names)
        predicted = predicted or column_names(spec, output or view, first[0].shape)
        for i, name in enumerate(arguments.keep):
            if name in (*predicted, *arguments.keep[:i]):
                raise UsageError(f"--keep {name}: this column would be in the output twice")
        with writing(out, [*arguments.keep, *predicted]) as writer:
            for table, kept in itertools.chain([first], tables):
                writer.write(table, kept)
    return 0


def _tables(
    model: Model, path: str, blocks: Iterable[tuple[Any, list[Any]]], output: Any
) -> Iterator[tuple[np.ndarray, list[Any]]]:
    """Yield predictions and kept columns block by block; errors name the rows' place in the file."""
    done, transforms = 0, model.package.transforms
    for block, kept in blocks:
        try:
            predicted = model.transform(block) if transforms else model.predict(block, output)
        except InputError as error:
            place = f", rows from {done + 1:,} on" if done else ", the first rows"
            where = path + place if error.row is None else path
            raise InputError(f"{where}: {error.counted(done)}") from error
        done += len(block) if isinstance(block, list) else block.shape[0]
        yield table_of(predicted, model.package.output), kept
