"""Files of rows in a folder, read in pieces by any number of threads.

The scanner of pyarrow's datasets reads up to a gigabyte ahead of whoever takes its batches, which can't be
changed from Python. Here each thread reads a piece of a file itself, and holds one batch of it at a time.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from hbtvm.errors import InputError
from hbtvm.streaming.scorer import BATCH

SUFFIXES = {".parquet": "parquet", ".csv": "csv", ".arrow": "ipc", ".feather": "ipc"}
"""Of files that are read, and what they are to pyarrow."""

_PIECE = 1 << 16
"""Rows of a piece at least, where a file has as many."""


Piece = Callable[[], Iterator[pa.RecordBatch]]
"""Reads some of a file's rows."""


@dataclass(frozen=True)
class Source:
    """A file of rows; to be pickled.

    Attributes
    ----------
    path
        Where it is.
    kind
        What it is to pyarrow.
    schema
        Of the dataset.
    folders
        Columns that names of folders are, with their values.
    first
        The dataset's first file, whose columns the schema has.
    """

    path: str
    kind: str
    schema: pa.Schema
    folders: Mapping[str, Any]
    first: str

    def pieces(self, columns: Sequence[str]) -> Iterator[Piece]:
        """The file in pieces, which any thread may read; those of CSV one after the other alone.

        Parameters
        ----------
        columns
            Names of those to read.

        Raises
        ------
        InputError
            If it can't be read, or its columns are of other types than those of the first file. So may
            reading a piece.
        """
        read = {"parquet": _parquet, "ipc": _ipc, "csv": _csv}[self.kind]
        types = {name: self.schema.field(name).type for name in columns if name not in self.folders}
        schema = pa.schema([self.schema.field(name) for name in columns])
        with _explained(self.path):
            for piece in read(self.path, types, self._check):
                yield partial(self._read, piece, schema)

    def _read(self, piece: Piece, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        with _explained(self.path):
            for batch in piece():
                for start in range(0, batch.num_rows, BATCH):
                    yield self._conform(batch.slice(start, BATCH), schema)

    def _conform(self, batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
        arrays = [
            _constant(self.folders[field.name], batch.num_rows, field.type)
            if field.name in self.folders
            else _cast(batch.column(field.name), field.type)
            for field in schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _check(self, wanted: Iterable[str], found: Iterable[str]) -> None:
        lacking = set(wanted) - set(found)
        if lacking:
            raise InputError(f"{self.path}: column {min(lacking)!r} is not there, but is in {self.first}.")


class Dataset:
    """Files of rows in a folder, and folders in it, all of one kind.

    Folders called ``name=value`` are columns, as Hive has them. Files and folders whose names begin with
    ``.`` or ``_`` are none of it.

    Parameters
    ----------
    folder
        Where they are; or one file.

    Attributes
    ----------
    folder
        Where they are.
    files
        Names below the folder, in order.
    schema
        Of their rows; that of the first file.

    Raises
    ------
    InputError
        If there are no files, files of several kinds, or the first can't be read.
    """

    def __init__(self, folder: Path) -> None:
        candidates: Iterable[Path] = folder.rglob("*")
        if folder.is_file():
            candidates, folder = [folder], folder.parent
        self.folder = folder
        found = sorted(
            one.relative_to(folder)
            for one in candidates
            if one.suffix.lower() in SUFFIXES
            and not any(part.startswith((".", "_")) for part in one.relative_to(folder).parts)
            and one.is_file()
        )
        kinds = {SUFFIXES[one.suffix.lower()] for one in found}
        if not found:
            raise InputError(f"{folder}: there are no files of rows; known are {', '.join(SUFFIXES)}.")
        if len(kinds) > 1:
            raise InputError(f"{folder}: there are files of several kinds, {', '.join(sorted(kinds))}.")
        self.files = [str(one) for one in found]
        (self._kind,) = kinds
        with _explained(str(folder / found[0])):
            whole = pads.dataset(
                [str(folder / one) for one in found],
                format=self._kind,
                partitioning="hive",
                partition_base_dir=str(folder),
            )
            self.schema = whole.schema
            fragments = {os.path.relpath(one.path, folder): one for one in whole.get_fragments()}
            self._keys = {
                file: pads.get_partition_keys(one.partition_expression) for file, one in fragments.items()
            }
            first = fragments[self.files[0]].physical_schema.names
            self._folders = set(self.schema.names) - set(first)

    def source(self, file: str) -> Source:
        """One of the files."""
        keys = self._keys[file]
        folders = {name: keys.get(name) for name in self._folders}
        return Source(str(self.folder / file), self._kind, self.schema, folders, self.files[0])


_Check = Callable[[Iterable[str], Iterable[str]], None]
"""Takes columns that are wanted, and those that are there."""


def _parquet(path: str, types: dict[str, pa.DataType], check: _Check) -> Iterator[Piece]:
    """Groups of rows."""
    with pq.ParquetFile(path) as file:
        metadata = file.metadata
        check(types, file.schema_arrow.names)

    def batches(groups: list[int]) -> Iterator[pa.RecordBatch]:
        with pq.ParquetFile(path, metadata=metadata) as own:
            if types:
                yield from own.iter_batches(BATCH, groups, list(types), use_threads=False)
            else:  # columns that folders are, alone
                rows = sum(metadata.row_group(group).num_rows for group in groups)
                yield from _bare(rows)

    for groups, _ in _groups(metadata):
        yield partial(batches, groups)


def _groups(metadata: pq.FileMetaData) -> Iterator[tuple[list[int], int]]:
    """Groups of rows that make a piece, and its rows."""
    groups: list[int] = []
    rows = 0
    for group in range(metadata.num_row_groups):
        groups.append(group)
        rows += metadata.row_group(group).num_rows
        if rows >= _PIECE or group == metadata.num_row_groups - 1:
            yield groups, rows
            rows, groups = 0, []


def rows_of_pieces(source: Source) -> list[int] | None:
    """Rows of each piece of a file; None where that is not known without reading it.

    Raises
    ------
    InputError
        If the file can't be read.
    """
    if source.kind != "parquet":
        return None
    with _explained(source.path), pq.ParquetFile(source.path) as file:
        return [rows for _, rows in _groups(file.metadata)]


def _ipc(path: str, types: dict[str, pa.DataType], check: _Check) -> Iterator[Piece]:
    """Record batches of Arrow's files."""

    def opened() -> pa.RecordBatchFileReader:
        # Arrays keep the file mapped, and each piece has a reader of its own, which threads may not share.
        return pa.ipc.open_file(pa.memory_map(path))

    reader = opened()
    check(types, reader.schema.names)

    def batches(number: int) -> Iterator[pa.RecordBatch]:
        batch = opened().get_batch(number).select(list(types))
        # pyarrow takes offsets and indices as they are, and compiled code would follow them away.
        batch.validate(full=True)
        yield batch

    for i in range(reader.num_record_batches):
        yield partial(batches, i)


def _csv(path: str, types: dict[str, pa.DataType], check: _Check) -> Iterator[Piece]:
    """Blocks, which are parsed one after the other."""
    with pyarrow.csv.open_csv(path) as file:
        names = file.schema.names
    check(types, names)
    options = pyarrow.csv.ConvertOptions(column_types=types, include_columns=list(types) or None)
    with pyarrow.csv.open_csv(path, convert_options=options) as file:
        for batch in file:
            yield partial(iter, [batch])


def _bare(rows: int) -> Iterator[pa.RecordBatch]:
    """Rows without columns."""
    for start in range(0, rows, BATCH):
        count = min(BATCH, rows - start)
        yield pa.RecordBatch.from_arrays([pa.nulls(count)], ["nothing"])


def _constant(value: object, rows: int, kind: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(kind):
        return pa.repeat(pa.scalar(value, kind.value_type), rows).dictionary_encode().cast(kind)
    return pa.repeat(pa.scalar(value, kind), rows)


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array:
    return column if column.type == kind else column.cast(kind)


@contextlib.contextmanager
def _explained(path: str) -> Iterator[None]:
    """Tell a damaged file, for which pyarrow has errors of several kinds, from one that can't be read."""
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno):
            raise
        first = next(iter(str(error).splitlines()), "")
        raise InputError(
            f"{path}: this is damaged, or of other types than the first file ({first})."
        ) from error
