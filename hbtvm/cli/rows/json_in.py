"""Files of JSON objects, one for each row."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hbtvm.cli.arguments import UsageError
from hbtvm.cli.rows.text_in import explained, open_text
from hbtvm.graph.graph import InputSpec


class JsonFile:
    """A file with a JSON value, mostly an object, for each row: one per line, or all in an array."""

    names: tuple[str, ...] | None = None

    def __init__(self, path: Path, spec: InputSpec) -> None:
        self._any = spec.rows_are_values
        if spec.feature_names is None and not self._any:
            raise UsageError(f"{path}: the model was trained without column names, which JSON's objects have")
        self._path, self.width = path, len(spec.feature_names or (None,))
        self._file = open_text(path)

    def blocks(
        self, rows: int, read: Sequence[int], keep: Sequence[str] = ()
    ) -> Iterator[tuple[list[Any], list[Any]]]:
        """See `DataFile`; yields lists of rows."""
        values, done = self._rows(), 0
        while block := list(itertools.islice(values, rows)):
            for name in keep:
                for number, row in enumerate(block, done + 1):
                    if not isinstance(row, dict) or name not in row:
                        raise UsageError(f"{self._path}: row {number} has no {name!r} to keep")
            yield block, [[row[name] for row in block] for name in keep]
            done += len(block)

    def _rows(self) -> Iterator[Any]:
        for number, row in enumerate(self._values(), 1):
            if not isinstance(row, dict) and not self._any:
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
                    raise UsageError(f"{self._path}: line {number} is not JSON ({error})") from error
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
            with explained(self._path):
                yield
        except (ValueError, RecursionError) as error:  # ValueError also for too many digits
            raise UsageError(f"{self._path}: this is not JSON ({error})") from error

    def close(self) -> None:
        """Close the file."""
        self._file.close()
