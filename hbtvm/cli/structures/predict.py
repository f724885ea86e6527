"""``hbtvm predict`` for recursive models: a row for each structure, or for each of its nodes."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from hbtvm.cli.arguments import UsageError
from hbtvm.cli.rows.data_out import writing
from hbtvm.cli.rows.text_in import STANDARD
from hbtvm.cli.structures.options import vocabulary_of
from hbtvm.cli.structures.structures_in import StructureFile
from hbtvm.errors import InputError
from hbtvm.recursive.records.places import places_of, require_one_root
from hbtvm.runtime.model import Model
from hbtvm.streaming.outputs import column_names, table_of


def predict(model: Model, path: Path, out: Path | None, output: Any, arguments: argparse.Namespace) -> int:
    """Run the command.

    `out`: the file; None for standard output.
    `output`: as of `Model.predict`.
    """
    entry = model.package.recursion
    assert entry is not None
    if str(path) == STANDARD:
        raise UsageError("a recursive model needs a file, whose suffix says how the structures are written")
    usual = {"drop": (), "keep": (), "na": (), "delimiter": None, "header": "auto"}
    for name, value in usual.items():
        if getattr(arguments, name) != value:
            raise UsageError(f"--{name} needs columns, and structures have none")
    inputs = {item.name: item for item in entry.inputs}
    words = vocabulary_of(arguments, inputs, entry.vocabulary)
    file = StructureFile(path, entry.children, inputs, words, arguments.labels)
    index = arguments.index or entry.over == "nodes"
    tables = _tables(model, file, output, index)
    first = next(tables, None)
    if first is None:
        raise UsageError(f"{path}: there are no structures to predict")
    names = column_names(model.package.output, output, first[0].shape)
    is_array = out is not None and out.suffix.lower() == ".npy"
    if index and not is_array:
        names = ["structure", *(["node"] if first[1].shape[1] > 1 else []), *names]
    with writing(out, names) as writer:
        writer.write(first[0], [*first[1].T] if index else ())
        for table, places in tables:
            writer.write(table, [*places.T] if index else ())
    return 0


def _tables(
    model: Model, file: StructureFile, output: Any, index: bool
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield predictions block by block, with each row's numbers of structure and node."""
    entry = model.package.recursion
    assert entry is not None
    done = 0
    for block in file.blocks():
        structures = block.structures
        try:
            predicted = model.predict(structures, output)
            if entry.over == "roots" and not index:
                require_one_root(structures, "--index tells them apart")
        except InputError as error:
            raise file.explained(error, block.places) from error
        places = places_of(structures, entry.over)
        places[:, 0] += done
        done += len(structures)
        yield table_of(predicted, model.package.output), places
