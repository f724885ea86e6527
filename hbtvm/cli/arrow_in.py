"""Arrow files (Feather) and files of JSON objects."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hbtvm.cli.arguments import UsageError
from hbtvm.graph.graph import InputSpec


class ArrowBatches:
    """An Arrow file in the form of `pyarrow.parquet.ParquetFile`, as far as it is needed here."""

    def __init__(self, path: Path) -> None:
        try:
            from pyarrow import ipc, memory_map
        except ImportError:
            raise UsageError(
                "for .arrow and .feather files pyarrow is needed: pip install 'hbtvm[parquet]'"
            ) from None
        self._source = memory_map(str(path))
        try:
            self._file = ipc.open_file(self._source)
            self._batches = (self._file.get_batch(i) for i in range(self._file.num_record_batches))
        except ValueError:  # a stream has no list of its batches at the end
            self._source.seek(0)
            self._file = ipc.open_stream(self._source)
            self._batches = iter(self._file)
        self.schema_arrow = self._file.schema

    def iter_batches(self, batch_size: int, columns: Sequence[str]) -> Iterator[Any]:
        """Record batches of at most so many rows."""
        for batch in self._batches:
            chosen = batch.select(list(columns))
            for start in range(0, max(1, batch.num_rows), batch_size):
                yield chosen.slice(start, batch_size)

    def close(self) -> None:
        """Close the file."""
        self._source.close()


class JsonFile:
    """A file with a JSON object for each row: one in each line, or all in one array."""

    names: tuple[str, ...] | None = None

    def __init__(self, path: Path, spec: InputSpec) -> None:
        if spec.feature_names is None:
            raise UsageError(f"{path}: the model was trained without column names, which JSON's objects have")
        self._path, self.width = path, len(spec.feature_names)
        self._file = open(path, encoding="utf-8-sig")  # noqa: SIM115  (closed by `close`)

    def blocks(self, rows: int, keep: Sequence[int]) -> Iterator[list[dict[str, Any]]]:
        """See `DataFile`; lists of dicts, of which the model takes what it reads."""
        found = self._rows()
        while block := list(itertools.islice(found, rows)):
            yield block

    def _rows(self) -> Iterator[dict[str, Any]]:
        number = 0
        for row in self._values():
            number += 1
            if not isinstance(row, dict):
                raise UsageError(f"{self._path}: row {number} is {row!r:.60}, expected an object")
            yield row

    def _values(self) -> Iterator[Any]:
        with self._explained():
            start = self._file.read(1)
            while start.isspace():
                start = self._file.read(1)
            self._file.seek(0)
            if start == "[":
                yield from json.load(self._file)
                return
        for number, line in enumerate(self._lines(), 1):
            if line.strip():
                try:
                    value = json.loads(line)
                except (ValueError, RecursionError) as error:
                    raise UsageError(f"{self._path}: line {number} is no JSON ({error})") from error
                yield value

    def _lines(self) -> Iterator[str]:
        while True:
            with self._explained():
                line = self._file.readline()
            if not line:
                return
            yield line

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except UnicodeDecodeError as error:
            raise UsageError(f"{self._path}: this is no text in UTF-8 ({error.reason})") from error
        except (json.JSONDecodeError, RecursionError) as error:
            raise UsageError(f"{self._path}: this is no JSON ({error})") from error

    def close(self) -> None:
        """Close the file."""
        self._file.close()
