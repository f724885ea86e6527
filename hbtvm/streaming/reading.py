"""Files of rows in a folder, read in pieces by any number of threads.

The scanner of pyarrow's datasets reads up to a gigabyte ahead of whoever takes its batches, which can't be
changed from Python. Here each thread reads a piece of a file itself, and holds one batch of it at a time.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.dataset as pads
import pyarrow.parquet as pq

from hbtvm.errors import InputError

SUFFIXES = {".parquet": "parquet", ".csv": "csv", ".arrow": "ipc", ".feather": "ipc"}
"""Of files that are read, and what they are to pyarrow."""

BATCH = 1 << 15
"""Rows of a batch at most."""

_PIECE = 1 << 16
"""Rows of a piece at least, where a file has as many."""


Piece = Callable[[], Iterator[pa.RecordBatch]]
"""Reads some of a file's rows."""


class Dataset:
    """Files of rows in a folder, and folders in it, all of one kind.

    Folders called ``name=value`` are columns, as Hive has them. Files and folders whose names begin with
    ``.`` or ``_`` are none of it.

    Parameters
    ----------
    folder
        Where they are.

    Attributes
    ----------
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
        self.folder = folder
        found = sorted(
            one.relative_to(folder)
            for one in folder.rglob("*")
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
        with _explained(folder / found[0]):
            whole = pads.dataset(
                [str(folder / one) for one in found],
                format=self._kind,
                partitioning="hive",
                partition_base_dir=str(folder),
            )
            self.schema = whole.schema
            fragments = {os.path.relpath(one.path, folder): one for one in whole.get_fragments()}
            # Columns that names of folders are, and their values.
            self._by_folder = {
                file: pads.get_partition_keys(one.partition_expression) for file, one in fragments.items()
            }
            first = fragments[self.files[0]].physical_schema.names
            self._folders = set(self.schema.names) - set(first)

    def pieces(self, file: str, columns: Sequence[str]) -> Iterator[Piece]:
        """A file in pieces, which any thread may read; those of CSV one after the other alone.

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
        path = self.folder / file
        read = {"parquet": _parquet, "ipc": _ipc, "csv": _csv}[self._kind]
        own = [name for name in columns if name not in self._folders]
        types = {name: self.schema.field(name).type for name in own}
        keys = self._by_folder[file]
        schema = pa.schema([self.schema.field(name) for name in columns])

        def conform(batch: pa.RecordBatch) -> pa.RecordBatch:
            arrays = [
                _constant(keys.get(field.name), batch.num_rows, field.type)
                if field.name in self._folders
                else _cast(batch.column(field.name), field.type)
                for field in schema
            ]
            return pa.RecordBatch.from_arrays(arrays, schema=schema)

        def reading(piece: Piece) -> Iterator[pa.RecordBatch]:
            with _explained(path):
                for batch in piece():
                    for start in range(0, batch.num_rows, BATCH):
                        yield conform(batch.slice(start, BATCH))

        with _explained(path):
            for piece in read(path, types, self._lacks(path)):
                yield partial(reading, piece)

    def _lacks(self, path: Path) -> Callable[[Sequence[str], Sequence[str]], None]:
        def check(wanted: Sequence[str], found: Sequence[str]) -> None:
            lacking = set(wanted) - set(found)
            if lacking:
                raise InputError(f"{path}: column {min(lacking)!r} is not there, but is in {self.files[0]}.")

        return check


_Check = Callable[[Sequence[str], Sequence[str]], None]
"""Takes columns that are wanted, and those that are there."""


def _parquet(path: Path, types: dict[str, pa.DataType], check: _Check) -> Iterator[Piece]:
    """Groups of rows."""
    with pq.ParquetFile(path) as file:
        metadata = file.metadata
        check(list(types), file.schema_arrow.names)

    def batches(groups: list[int]) -> Iterator[pa.RecordBatch]:
        with pq.ParquetFile(path, metadata=metadata) as own:
            if types:
                yield from own.iter_batches(BATCH, groups, list(types), use_threads=False)
            else:  # columns that folders are, alone
                rows = sum(metadata.row_group(group).num_rows for group in groups)
                yield from _bare(rows)

    groups: list[int] = []
    rows = 0
    for group in range(metadata.num_row_groups):
        groups.append(group)
        rows += metadata.row_group(group).num_rows
        if rows >= _PIECE or group == metadata.num_row_groups - 1:
            yield partial(batches, groups)
            rows, groups = 0, []


def _ipc(path: Path, types: dict[str, pa.DataType], check: _Check) -> Iterator[Piece]:
    """Record batches of Arrow's files."""

    def opened() -> pa.RecordBatchFileReader:
        # Arrays keep the file mapped, and each piece has a reader of its own, which threads may not share.
        return pa.ipc.open_file(pa.memory_map(str(path)))

    reader = opened()
    check(list(types), reader.schema.names)

    def batches(number: int) -> Iterator[pa.RecordBatch]:
        yield opened().get_batch(number)

    for i in range(reader.num_record_batches):
        yield partial(batches, i)


def _csv(path: Path, types: dict[str, pa.DataType], check: _Check) -> Iterator[Piece]:
    """Blocks, which are parsed one after the other."""
    with pyarrow.csv.open_csv(path) as file:
        names = file.schema.names
    check(list(types), names)
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
def _explained(path: Path) -> Iterator[None]:
    """Tell a damaged file, for which pyarrow has errors of several kinds, from one that can't be read."""
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OSError) as error:
        if isinstance(error, OSError) and error.errno:
            raise
        first = next(iter(str(error).splitlines()), "")
        raise InputError(
            f"{path}: this is damaged, or of other types than the first file ({first})."
        ) from error
