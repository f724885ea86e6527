"""Parquet and Arrow files (Feather), by pyarrow."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hbtvm.cli.arguments import UsageError
from hbtvm.cli.rows.text_in import in_file
from hbtvm.errors import InputError, missing_package
from hbtvm.graph.graph import InputSpec
from hbtvm.streaming.categories import codes, numbers_of
from hbtvm.streaming.matching import category_types


class ParquetFile:
    """A Parquet or Arrow file; nested columns can be dropped, but not used."""

    def __init__(self, path: Path, spec: InputSpec, opened: Callable[[Path], Any] | None = None) -> None:
        self._path = path
        self._spec = spec
        self._kind = "Parquet" if opened is None else "Arrow"
        self._numbers = numbers_of(spec)
        opened = opened or arrow_parquet().ParquetFile
        with self._explained():
            self._file = opened(path)
            self.names: tuple[str, ...] | None = tuple(self._file.schema_arrow.names)
        self.width = len(self.names)
        twice = [name for i, name in enumerate(self.names) if name in self.names[:i]]
        if twice:
            raise UsageError(f"{path}: column {twice[0]!r} appears twice")

    def blocks(
        self, rows: int, read: Sequence[int], keep: Sequence[str] = ()
    ) -> Iterator[tuple[Any, list[Any]]]:
        """See `DataFile`; yields record batches, in which the model encodes strings itself."""
        assert self.names is not None
        columns = [self.names[i] for i in read]
        if self._spec.category_order:
            self._spec = self._placed(columns)
            self._numbers = {index for index, known in self._spec.categories.items() if known}
        batches = self._file.iter_batches(batch_size=rows, columns=list(dict.fromkeys([*columns, *keep])))
        done = 0
        while True:
            with self._explained():
                batch = next(batches, None)
            if batch is None:
                return
            kept = [batch.column(name) for name in keep]
            batch = batch.select(columns)
            if batch.num_rows:
                with in_file(self._path, done):
                    block = self._coded(batch) if self._numbers else batch
                yield block, kept
            done += batch.num_rows

    def _placed(self, columns: Sequence[str]) -> InputSpec:
        """Return the model's input, with categories placed by the file's types."""
        typed, words = category_types(self._file.schema_arrow)
        sure = [i for i, name in enumerate(columns) if name in typed or name in words]
        try:
            return self._spec.placed(sure, [i for i in sure if columns[i] in words])
        except InputError as error:
            raise UsageError(f"{self._path}: {error}") from error

    def _coded(self, batch: Any) -> np.ndarray:
        block = np.empty((batch.num_rows, batch.num_columns), object)
        for i in range(batch.num_columns):
            values = batch.column(i).to_pylist()
            if i in self._numbers:
                block[:, i] = codes(values, self._spec, i)
            else:
                block[:, i] = values
        return block

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        """Turn pyarrow's errors about damaged files into usage errors."""
        try:
            yield
        except Exception as error:
            arrows = getattr(sys.modules.get("pyarrow"), "ArrowException", ValueError)
            if not isinstance(error, (OSError, ValueError, arrows)) or isinstance(error, MemoryError):
                raise
            if isinstance(error, OSError) and error.errno:
                raise
            first = next(iter(str(error).splitlines()), "")
            raise UsageError(f"{self._path}: this is not a readable {self._kind} file ({first})") from error

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def arrow_parquet() -> Any:
    """Return the module `pyarrow.parquet`; raises `MissingPackageError` if it is not installed."""
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise missing_package(".parquet files need", "pyarrow", "hbtvm[parquet]") from None
    return parquet


class ArrowBatches:
    """An Arrow file with the interface of `pyarrow.parquet.ParquetFile`."""

    def __init__(self, path: Path) -> None:
        try:
            from pyarrow import ipc, memory_map
        except ImportError:
            raise missing_package(".arrow and .feather files need", "pyarrow", "hbtvm[parquet]") from None
        self._source = memory_map(str(path))
        try:
            self._file = ipc.open_file(self._source)
            self._batches = (self._file.get_batch(i) for i in range(self._file.num_record_batches))
        except ValueError:  # a stream, which has no list of batches
            self._source.seek(0)
            self._file = ipc.open_stream(self._source)
            self._batches = iter(self._file)
        self.schema_arrow = self._file.schema

    def iter_batches(self, batch_size: int, columns: Sequence[str]) -> Iterator[Any]:
        """Yield record batches of at most `batch_size` rows."""
        for batch in self._batches:
            chosen = batch.select(list(columns))
            # pyarrow does not check offsets and indices, and compiled code follows them.
            chosen.validate(full=True)
            for start in range(0, max(1, batch.num_rows), batch_size):
                yield chosen.slice(start, batch_size)

    def close(self) -> None:
        """Close the file."""
        self._source.close()
