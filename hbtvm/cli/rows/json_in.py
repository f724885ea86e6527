"""Files of JSON objects, one for each row."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hbtvm.cli.arguments import UsageError
from hbtvm.graph.graph import InputSpec


class JsonFile:
    """A file with a JSON value, mostly an object, for each row: one per line, or all in an array."""

    names: tuple[str, ...] | None = None

    def __init__(self, path: Path, spec: InputSpec) -> None:
        self._any = spec.rows_are_values
        if spec.feature_names is None and not self._any:
            raise UsageError(f"{path}: the model was trained without column names, which JSON's objects have")
        self._path, self.width = path, len(spec.feature_names or (None,))
        self._file = open(path, encoding="utf-8-sig")  # noqa: SIM115  (closed by `close`)

    def blocks(self, rows: int, keep: Sequence[int]) -> Iterator[list[Any]]:
        """See `DataFile`; yields lists of rows."""
        values = self._rows()
        while block := list(itertools.islice(values, rows)):
            yield block

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
            yield
        except UnicodeDecodeError as error:
            raise UsageError(f"{self._path}: this is not UTF-8 text ({error.reason})") from error
        except (ValueError, RecursionError) as error:  # ValueError also for too many digits
            raise UsageError(f"{self._path}: this is not JSON ({error})") from error

    def close(self) -> None:
        """Close the file."""
        self._file.close()
