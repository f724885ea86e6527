"""Write predictions to a file block by block; the file appears when it is complete."""

from __future__ import annotations

import contextlib
import csv
import gzip
import json
import math
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, Protocol, cast

import numpy as np
from numpy.lib import format as npy

from hbtvm.cli import files
from hbtvm.cli.arguments import UsageError
from hbtvm.cli.rows.arrow_in import arrow_parquet
from hbtvm.cli.rows.text_in import is_compressed, suffix_of

SUFFIXES = (".csv", ".csv.gz", ".npy", ".parquet", ".jsonl")  # suffixes of files of predictions


class Writer(Protocol):
    """Writes predictions in blocks."""

    def write(self, block: np.ndarray, before: Sequence[Any] = ()) -> None:
        """Write rows, shape (n,) or (n, columns); tables begin with the columns `before`.

        Columns are lists, arrays of shape (n,) or Arrow arrays.
        """

    def close(self) -> None:
        """Write the rest."""


@contextlib.contextmanager
def writing(path: Path | None, names: Sequence[str]) -> Iterator[Writer]:
    """Open a file for predictions; it appears at the end of the ``with`` block.

    `path`: a file with one of `SUFFIXES`; None for CSV on standard output.
    `names`: names of the columns.
    Raises `OSError` if the file can't be written; it names the file.
    """
    if path is None:
        with _standard_output() as stream:
            yield CsvWriter(stream, names)
        return
    with files.replacing(path) as temporary:
        writer = _FileWriter(path, temporary, names)
        try:
            yield writer
            writer.close()
        finally:
            writer.abandon()


def check_suffix(path: str) -> None:
    """Raise a `UsageError` if a file's suffix is not in `SUFFIXES`."""
    suffix = suffix_of(path)
    if suffix not in SUFFIXES or (is_compressed(Path(path)) and suffix != ".csv"):
        suffix = Path(path).suffix
        known = ", ".join(SUFFIXES)
        raise UsageError(f"{path}: output with the suffix {suffix!r} can't be written; known are {known}")
    if suffix == ".parquet":
        arrow_parquet()


class _FileWriter:
    """The writer for a file's suffix; errors name the final file, not the temporary one."""

    def __init__(self, path: Path, temporary: Path, names: Sequence[str]) -> None:
        self._path = path
        with self._named_errors():
            suffix = suffix_of(path)
            self._file: IO[Any]
            if is_compressed(path):
                self._file = gzip.open(temporary, "wt", 6, "utf-8", newline="")  # noqa: SIM115
            elif suffix in (".csv", ".jsonl"):
                self._file = open(temporary, "w", encoding="utf-8", newline="")  # noqa: SIM115  (`close`)
            else:
                self._file = open(temporary, "wb")  # noqa: SIM115
            kinds: dict[str, Any] = {
                ".csv": CsvWriter, ".npy": NpyWriter, ".parquet": ParquetWriter, ".jsonl": JsonlWriter
            }  # fmt: skip
            self._writer: Writer = kinds[suffix](self._file, names)

    def write(self, block: np.ndarray, before: Sequence[Any] = ()) -> None:
        with self._named_errors():
            self._writer.write(block, before)

    def close(self) -> None:
        with self._named_errors():
            self._writer.close()
            self._file.close()

    def abandon(self) -> None:
        """Close the file without writing the rest."""
        if isinstance(self._writer, ParquetWriter):
            self._writer.forget()
        with contextlib.suppress(OSError):
            self._file.close()

    @contextlib.contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            number = error.errno or 0
            raise OSError(number, os.strerror(number) if number else str(error), str(self._path)) from error


class CsvWriter:
    """CSV with a header; numbers have the fewest digits that identify them."""

    def __init__(self, file: IO[str], names: Sequence[str]) -> None:
        self._csv = csv.writer(file, lineterminator="\n")
        self._csv.writerow(names)

    def write(self, block: np.ndarray, before: Sequence[Any] = ()) -> None:
        """See `Writer`."""
        table = _columns(block)
        # As a Python float, a float32 would be written with digits beyond its precision.
        rows = (table.astype(str) if table.dtype == np.float32 else table).tolist()
        if before:
            columns = map(_values, before)
            rows = [[*first, *row] for *first, row in zip(*columns, rows, strict=True)]
        self._csv.writerows(rows)

    def close(self) -> None:
        """See `Writer`."""


class JsonlWriter:
    """A JSON object per row; missing values are null."""

    def __init__(self, file: IO[str], names: Sequence[str]) -> None:
        self._file, self._names = file, list(names)

    def write(self, block: np.ndarray, before: Sequence[Any] = ()) -> None:
        """See `Writer`."""
        table = _columns(block)
        columns = [*map(_json, before), *(_json(column) for column in table.T)]
        rows = zip(*columns, strict=True) if columns else iter(())
        self._file.writelines(
            json.dumps(dict(zip(self._names, row, strict=True)), ensure_ascii=False) + "\n" for row in rows
        )

    def close(self) -> None:
        """See `Writer`."""


class NpyWriter:
    """An array file; `close` writes the header again with the number of rows."""

    def __init__(self, file: IO[bytes], names: Sequence[str]) -> None:
        self._file = file
        self._first: np.ndarray | None = None
        self._rows = 0

    def write(self, block: np.ndarray, before: Sequence[Any] = ()) -> None:
        """See `Writer`."""
        if self._first is None:
            if block.dtype.hasobject:
                raise UsageError(
                    "labels of several types have no place in a .npy file; write .csv or .parquet"
                )
            self._first = block[:0]
            self._header(self._file)
        self._rows += len(block)
        self._file.write(np.ascontiguousarray(block, self._first.dtype).tobytes())

    def close(self) -> None:
        """See `Writer`."""
        self._file.seek(0)
        self._header(self._file)

    def _header(self, file: IO[bytes]) -> None:
        assert self._first is not None
        shape = (self._rows, *self._first.shape[1:])
        # Numpy's header leaves room for the first axis to grow.
        npy.write_array_header_1_0(
            file, {"descr": npy.dtype_to_descr(self._first.dtype), "fortran_order": False, "shape": shape}
        )


class ParquetWriter:
    """A Parquet file with the types of the first block."""

    def __init__(self, file: IO[bytes], names: Sequence[str]) -> None:
        self._file = file
        self._names = list(names)
        self._types: list[Any] = []
        self._writer: Any = None

    def write(self, block: np.ndarray, before: Sequence[Any] = ()) -> None:
        """See `Writer`."""
        import pyarrow

        arrays = [*before, *map(np.ascontiguousarray, _columns(block).T)]
        try:
            columns = [
                array if isinstance(array, pyarrow.Array) else pyarrow.array(array, kind)
                for array, kind in zip(arrays, self._types or [None] * len(arrays), strict=True)
            ]
        except pyarrow.ArrowException as error:
            raise UsageError(f"a .parquet column can't hold values of several types ({error})") from error
        batch = pyarrow.table(columns, names=self._names)
        if self._writer is None:
            self._types = batch.schema.types
            self._writer = arrow_parquet().ParquetWriter(self._file, batch.schema)
        self._writer.write_table(batch)

    def close(self) -> None:
        """See `Writer`."""
        self._writer.close()

    def forget(self) -> None:
        """Mark pyarrow's writer as closed, so that garbage collection writes nothing."""
        if self._writer is not None:
            self._writer.is_open = False


def _values(column: Any) -> list[Any]:
    """Return a column's Python values; floats of Arrow as text, with the digits of their own type."""
    if isinstance(column, list):
        return column
    if isinstance(column, np.ndarray):
        return cast(list[Any], column.tolist())
    floats = str(column.type) in ("halffloat", "float", "double")
    return cast(list[Any], (column.cast("string") if floats else column).to_pylist())


def _json(column: Any) -> list[Any]:
    """Return a column's values for JSON."""
    if isinstance(column, np.ndarray) and column.dtype == np.float32:
        column = column.astype(str).astype(np.float64)  # the fewest digits that identify them
    return list(map(_plain, _values(column) if isinstance(column, list | np.ndarray) else column.to_pylist()))


def _plain(value: Any) -> Any:
    """Return a value for JSON, which has no NaN and no infinity; dates and the like as text."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def _columns(block: np.ndarray) -> np.ndarray:
    """Return the block with two axes."""
    return block[:, None] if block.ndim == 1 else block


@contextlib.contextmanager
def _standard_output() -> Iterator[IO[str]]:
    """Yield standard output in UTF-8: in the terminal's encoding, data could lose letters."""
    sys.stdout.flush()
    encoding = getattr(sys.stdout, "encoding", None)
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(encoding="utf-8", errors="strict")
    yield sys.stdout
    sys.stdout.flush()
    if encoding and hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(encoding=encoding, errors="replace")
