"""Files of rows in a folder, read in pieces by any number of threads.

The scanner of pyarrow's datasets reads up to a gigabyte ahead of its consumer, which Python cannot change.
Here each thread reads a piece of a file itself, and holds one batch at a time.
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
"""Suffixes of readable files, and pyarrow's names of their formats."""

_PIECE = 1 << 16  # minimal rows of a piece, if the file has as many


Piece = Callable[[], Iterator[pa.RecordBatch]]  # reads some of a file's rows


@dataclass(frozen=True)
class Source:
    """A file of rows; can be pickled."""

    path: str
    kind: str  # pyarrow's name of the format
    schema: pa.Schema  # the dataset's schema
    folders: Mapping[str, Any]  # columns from folder names, with their values
    first: str  # the dataset's first file, which defines the schema

    def pieces(self, columns: Sequence[str]) -> Iterator[Piece]:
        """Yield the file's pieces, which any thread may read; pieces of CSV must be read in order.

        `columns`: names of the columns to read.
        Raises `InputError` if it can't be read, or its columns have other types than those of the first file.
        Reading a piece may raise this too.
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

    def _check(self, wanted: Iterable[str], present: Iterable[str]) -> None:
        lacking = set(wanted) - set(present)
        if lacking:
            raise InputError(f"{self.path}: column {min(lacking)!r} is missing, but {self.first} has it.")


class Dataset:
    """Files of rows in a folder and its subfolders, all of one format.

    Folders called ``name=value`` are columns, as in Hive. Files and folders whose names begin with ``.`` or
    ``_`` are ignored.

    `folder`: the folder, or a single file.
    `files`: paths relative to the folder, in order.
    `schema`: schema of the first file.
    Raises `InputError` if there are no files, files of several formats, or the first can't be read.
    """

    def __init__(self, folder: Path) -> None:
        candidates: Iterable[Path] = folder.rglob("*")
        if folder.is_file():
            candidates, folder = [folder], folder.parent
        self.folder = folder
        files = sorted(
            path.relative_to(folder)
            for path in candidates
            if path.suffix.lower() in SUFFIXES
            and not any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
            and path.is_file()
        )
        kinds = {SUFFIXES[path.suffix.lower()] for path in files}
        if not files:
            raise InputError(f"{folder}: it has no files of rows; known suffixes are {', '.join(SUFFIXES)}.")
        if len(kinds) > 1:
            raise InputError(f"{folder}: it has files of several formats, {', '.join(sorted(kinds))}.")
        self.files = [str(path) for path in files]
        (self._kind,) = kinds
        with _explained(str(folder / files[0])):
            whole = pads.dataset(
                [str(folder / path) for path in files],
                format=self._kind,
                partitioning="hive",
                partition_base_dir=str(folder),
            )
            self.schema = whole.schema
            fragments = {
                os.path.relpath(fragment.path, folder): fragment for fragment in whole.get_fragments()
            }
            self._keys = {
                file: pads.get_partition_keys(fragment.partition_expression)
                for file, fragment in fragments.items()
            }
            first = fragments[self.files[0]].physical_schema.names
            self._folders = set(self.schema.names) - set(first)

    def source(self, file: str) -> Source:
        """Return one of the files."""
        keys = self._keys[file]
        folders = {name: keys.get(name) for name in self._folders}
        return Source(str(self.folder / file), self._kind, self.schema, folders, self.files[0])


_Check = Callable[[Iterable[str], Iterable[str]], None]  # called with the wanted and the available columns


def _parquet(path: str, types: dict[str, pa.DataType], check: _Check) -> Iterator[Piece]:
    """Yield row groups."""
    with pq.ParquetFile(path) as file:
        metadata = file.metadata
        check(types, file.schema_arrow.names)

    def batches(groups: list[int]) -> Iterator[pa.RecordBatch]:
        with pq.ParquetFile(path, metadata=metadata) as file:
            if types:
                yield from file.iter_batches(BATCH, groups, list(types), use_threads=False)
            else:  # only columns from folder names
                rows = sum(metadata.row_group(group).num_rows for group in groups)
                yield from _bare(rows)

    for groups, _ in _groups(metadata):
        yield partial(batches, groups)


def _groups(metadata: pq.FileMetaData) -> Iterator[tuple[list[int], int]]:
    """Yield the row groups of each piece, and its number of rows."""
    groups: list[int] = []
    rows = 0
    for group in range(metadata.num_row_groups):
        groups.append(group)
        rows += metadata.row_group(group).num_rows
        if rows >= _PIECE or group == metadata.num_row_groups - 1:
            yield groups, rows
            rows, groups = 0, []


def rows_of_pieces(source: Source) -> list[int] | None:
    """Return the rows of each piece of a file; None if that needs reading the file.

    Raises `InputError` if the file can't be read.
    """
    if source.kind != "parquet":
        return None
    with _explained(source.path), pq.ParquetFile(source.path) as file:
        return [rows for _, rows in _groups(file.metadata)]


def _ipc(path: str, types: dict[str, pa.DataType], check: _Check) -> Iterator[Piece]:
    """Yield record batches of Arrow files."""

    def opened() -> pa.RecordBatchFileReader:
        # Arrays keep the file mapped. Threads may not share a reader, so each piece opens its own.
        return pa.ipc.open_file(pa.memory_map(path))

    reader = opened()
    check(types, reader.schema.names)

    def batches(number: int) -> Iterator[pa.RecordBatch]:
        batch = opened().get_batch(number).select(list(types))
        # pyarrow does not check offsets and indices, and compiled code would follow them out of bounds.
        batch.validate(full=True)
        yield batch

    for i in range(reader.num_record_batches):
        yield partial(batches, i)


def _csv(path: str, types: dict[str, pa.DataType], check: _Check) -> Iterator[Piece]:
    """Yield blocks, which are parsed in order."""
    with pyarrow.csv.open_csv(path) as file:
        names = file.schema.names
    check(types, names)
    options = pyarrow.csv.ConvertOptions(column_types=types, include_columns=list(types) or None)
    with pyarrow.csv.open_csv(path, convert_options=options) as file:
        for batch in file:
            yield partial(iter, [batch])


def _bare(rows: int) -> Iterator[pa.RecordBatch]:
    """Yield rows without columns."""
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
    """Convert pyarrow's various errors for damaged files; other errors pass through."""
    try:
        yield
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno):
            raise
        first = next(iter(str(error).splitlines()), "")
        raise InputError(
            f"{path}: this file is damaged, or has other types than the first file ({first})."
        ) from error
