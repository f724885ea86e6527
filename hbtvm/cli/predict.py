"""``hbtvm predict``: rows in, predictions out, in memory that does not grow with the file."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hbtvm.cli import files
from hbtvm.cli.arguments import UsageError, examples, paragraphs, whole
from hbtvm.errors import InputError

if TYPE_CHECKING:
    import numpy as np

    from hbtvm.graph.output import OutputSpec
    from hbtvm.runtime.model import Model

_DESCRIPTION = """
Predict with a compiled model, for each row of DATA. Files may be of any size. Neither the training library
nor a compiler is needed.

DATA and OUT are told by their suffix: .csv, .npy (a two-dimensional array), or .parquet (with pyarrow); DATA
may also be .npz, a sparse matrix as scipy.sparse.save_npz writes it, .arrow or .feather (with pyarrow), or
.json, .jsonl or .ndjson, an object for each row. In CSV an empty field is a missing value. Where the file and
the model both have column names they must agree; a pipeline that finds its columns by name does so here, too,
in any order and among others. OUT appears when all is done, or not at all.
"""


def add_parser(commands: Any) -> None:
    """Add the command to the main parser's subparsers."""
    parser = commands.add_parser(
        "predict",
        help="predict with a compiled model",
        description=paragraphs(_DESCRIPTION),
        epilog=examples(
            ("hbtvm predict model.tar data.csv", "print predictions, as CSV"),
            ("hbtvm predict model.tar data.parquet -o predictions.parquet", "write them to a file"),
            ("hbtvm predict model.tar data.csv --output proba", "a column of probabilities for each class"),
            ("hbtvm predict model.tar train.csv --drop label,id", "leave out what is no feature"),
            ("hbtvm predict model.tar rows.npy -o out.npy --threads 4", "with four threads"),
            ("hbtvm predict model.tar rows.npz -o out.npy", "sparse rows, absent as the library has it"),
        ),
    )
    parser.add_argument("package", metavar="MODEL.tar", help="package that hbtvm tune or compile wrote")
    parser.add_argument(
        "data", metavar="DATA", help="rows to predict: .csv, .npy, .npz, .parquet, .arrow or .json"
    )
    parser.add_argument(
        "-o", "--out", metavar="OUT", help="where to write: .csv, .npy or .parquet (default: print CSV)"
    )
    parser.add_argument(
        "--output",
        choices=("label", "proba", "raw", "decision", "score", "transform"),
        metavar="KIND",
        help="what to predict: label (class labels), proba (probabilities), raw (raw scores), decision (the "
        "decision function), score (anomaly scores) or transform (the columns of the last step's transform), "
        "where the model has them (default: what the library's predict gives)",
    )
    parser.add_argument(
        "--header",
        choices=("auto", "yes", "no"),
        default="auto",
        metavar="WHEN",
        help="whether the first line of a .csv holds column names: yes, no, or auto, which decides by "
        "what is in it (default: %(default)s)",
    )
    parser.add_argument(
        "--drop",
        type=lambda text: tuple(text.split(",")),
        default=(),
        metavar="NAMES",
        help="columns to leave out, such as the label, with commas between",
    )
    parser.add_argument(
        "--threads",
        type=whole(1),
        metavar="N",
        help="threads to predict with (default: as many as it was tuned for)",
    )
    parser.add_argument(
        "--device",
        metavar="DEVICE",
        help="GPU to predict on, such as cuda:1, where the package is for GPUs (default: the first)",
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from hbtvm.cli.data_in import Data
    from hbtvm.cli.data_out import check_suffix, writing
    from hbtvm.cli.pipeline_in import columns_of

    package = files.existing(arguments.package, "a package")
    path = files.existing(arguments.data, "rows to predict")
    out = None
    if arguments.out is not None:
        check_suffix(arguments.out)
        out = files.writable(arguments.out)
        if out.exists() and out.samefile(path):
            raise UsageError(f"{out}: the predictions would replace the data")

    from hbtvm.runtime.model import load

    model = load(package, threads=arguments.threads, device=arguments.device)
    output = arguments.output
    spec = model.package.output
    available = (*spec.available(), *(("transform",) if model.beside is not None else ()))
    if output == "transform" and (model.beside is not None or model.package.transforms):
        model, output = model.beside or model, None
        spec = model.package.output
    elif output not in (None, *available):
        has = ", ".join(available) or "only its prediction"
        raise UsageError(f"--output {output}: this {spec.kind} has {has}")
    columns = None if model.pipeline is None else columns_of(model.pipeline)
    with Data(
        path, model.package.input, header=arguments.header, drop=arguments.drop, pipeline=columns
    ) as data:
        tables = _tables(model, path, data.blocks(), output)
        first = next(tables, None)
        if first is None:
            raise UsageError(f"{path}: there are no rows to predict")
        made = model.package.parts.table
        names = None if made is None or made.names is None else list(made.names)
        with writing(out, names or column_names(spec, output, first.shape)) as writer:
            writer.write(first)
            for table in tables:
                writer.write(table)
    return 0


def _tables(model: Model, path: Path, blocks: Iterable[Any], output: Any) -> Iterator[np.ndarray]:
    """Predict block by block; errors about a block's rows name their place in the file."""
    done, transforms = 0, model.package.transforms
    for block in blocks:
        try:
            predicted = model.transform(block) if transforms else model.predict(block, output)
        except InputError as error:
            place = f"rows from {done + 1:,} on" if done else "the first rows"
            raise InputError(f"{path}, {place}: {error}") from error
        done += len(block) if isinstance(block, list) else block.shape[0]
        yield _table(predicted, model.package.output)


def column_names(spec: OutputSpec, output: str | None, shape: Sequence[int]) -> list[str]:
    """Name the columns of predictions.

    Parameters
    ----------
    spec
        What the model gives.
    output
        What is predicted; None for what the library's ``predict`` gives.
    shape
        Of the predictions, ``(n,)`` or ``(n, columns)``.

    Returns
    -------
    ``label`` or ``prediction``, the classes for probabilities (with the target's number before them if
    there are several targets), else the output; numbered where there are several columns.
    """
    columns = shape[1] if len(shape) > 1 else 1
    if output == "proba":
        targets = [[str(name) for name in names.tolist()] for names in spec.classes]
        names = (
            [f"{i}_{name}" for i, target in enumerate(targets) for name in target]
            if len(targets) > 1
            else [name for target in targets for name in target]
        )
        return names if len(names) == columns else [str(i) for i in range(columns)]
    name = output or ("prediction" if spec.label_rule is None else "label")
    if len(shape) == 1 and name != "raw":
        return [name]
    return [f"{name}_{i}" for i in range(columns)]


def _table(predicted: Any, spec: OutputSpec) -> np.ndarray:
    """Predictions as one array: targets side by side, texts as texts of one width."""
    import numpy as np

    if isinstance(predicted, list):  # probabilities of several targets
        return np.concatenate(predicted, axis=1)
    if not isinstance(predicted, np.ndarray):  # sparse rows
        predicted = predicted.toarray()
    values: np.ndarray = predicted
    if values.dtype == object:
        classes = [label for labels in spec.classes for label in labels.tolist()]
        if all(isinstance(label, str) for label in classes):
            return values.astype(f"U{max(map(len, classes))}")
    return values
