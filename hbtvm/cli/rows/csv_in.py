"""Read CSV files in blocks of numbers.

Commas or another character between fields, quotes as in RFC 4180, UTF-8. An empty field is a missing value;
``true`` and ``false`` are 1 and 0; categories are spelt as in training. Any other field that is not a number
is an error. Errors count rows from 1, and a header is not a row.
"""

from __future__ import annotations

import csv
import itertools
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

import numpy as np

from hbtvm.cli.arguments import UsageError
from hbtvm.cli.rows.text_in import explained, in_file, open_text, shown, suffix_of
from hbtvm.errors import ROW, InputError
from hbtvm.graph.graph import InputSpec
from hbtvm.streaming.categories import codes, column_name
from hbtvm.streaming.matching import some

Header = Literal["auto", "yes", "no"]

NONE: Mapping[int, Any] = MappingProxyType({})

_WORDS = {"true": 1.0, "false": 0.0}


def usual_delimiter(path: Path) -> str:
    """Return the character between the fields of a file, by its suffix."""
    return "\t" if suffix_of(path) == ".tsv" else ","


class CsvFile:
    """An open CSV file.

    `path`: as `open_text` takes it.
    `spec`: the model's input.
    `header`: whether the first line holds names. ``"auto"``: if its fields include the model's feature names,
        or none of them is a number or a known category.
    `empty`: the value of an empty field, by column of texts, where it is not None.
    `delimiter`: the character between fields; None for a comma, and a tab in ``.tsv`` files.
    `na`: fields that stand for missing values, as empty fields do.
    `names`: names of the columns; None without a header.
    `width`: number of columns.
    """

    def __init__(
        self,
        path: Path,
        spec: InputSpec,
        header: Header = "auto",
        empty: Mapping[int, Any] = NONE,
        delimiter: str | None = None,
        na: Collection[str] = (),
    ) -> None:
        self._file, self._path = open_text(path, newline=""), shown(path)
        self._spec, self._empty, self._na = spec, empty, frozenset(na)
        self._delimiter = delimiter or usual_delimiter(path)
        self._reader = csv.reader(self._file, strict=True, delimiter=self._delimiter)
        self._records = self._read(path)
        try:
            self.names = self._find_names(header)
        except BaseException:
            self.close()
            raise

    def _find_names(self, header: Header) -> tuple[str, ...] | None:
        first = next(self._records, None)
        if first is None:
            names = self._spec.feature_names
            expected = f"{self._spec.n_features} columns" if names is None else f"the columns {some(names)}"
            raise UsageError(f"{self._path}: the file is empty, expected rows of {expected}")
        self.width = len(first)
        other = next((char for char in ";\t|," if char in first[0]), None)
        if self.width == 1 and self._spec.n_features > 1 and other is not None:
            raise UsageError(
                f"{self._path}: line 1 has no {self._delimiter!r}; if {other!r} separates its fields, say "
                f"--delimiter {'tab' if other == chr(9) else repr(other)}"
            )
        if header == "yes" or (header == "auto" and self._is_header(first)):
            return tuple(first)
        self._records = itertools.chain([first], self._records)
        return None

    def _is_header(self, first: Sequence[str]) -> bool:
        names = self._spec.feature_names
        if self._spec.rows_are_values:
            raise UsageError(f"{self._path}: line 1 may be a name or a text; say --header yes or --header no")
        if names is not None and set(names) <= set(first):
            return True
        first = self._without_na(first)
        lists = [*self._spec.categories.values(), *(order.values for order in self._spec.category_order)]
        known = {str(value) for values in lists for value in values}
        words = [field for field in first if _number(field) is None and field not in known]
        values = [field for field in first if field.strip() and field not in words]
        if words and values:
            # Data with a typo, taken for a header, would shift all predictions by one.
            raise UsageError(
                f"{self._path}: line 1 may be names or data, it has {words[0]!r} and {values[0]!r}; "
                "say --header yes or --header no"
            )
        return bool(words)

    def _without_na(self, record: Sequence[str]) -> list[str]:
        return ["" if field.strip() in self._na else field for field in record]

    def _read(self, path: Path) -> Iterator[list[str]]:
        """Yield records, without empty lines at the end."""
        empty = 0
        try:
            with explained(path):
                for record in self._reader:
                    if not record:
                        empty = empty or self._reader.line_num
                        continue
                    if empty:
                        # Skipping it would shift the predictions after it by one.
                        raise UsageError(f"{self._path}: line {empty} is empty")
                    yield record
        except csv.Error as error:
            raise UsageError(f"{self._path}: line {self._reader.line_num} is not CSV ({error})") from error

    def blocks(
        self, rows: int, read: Sequence[int], keep: Sequence[str] = ()
    ) -> Iterator[tuple[np.ndarray, list[Any]]]:
        """See `DataFile`.

        Yields rows of shape (n, features): float64, with codes in columns of categories; or Python objects if
        the model takes categories that are not numbers.
        """
        done = 0
        everything = list(read) == list(range(self.width))
        kept = [(self.names or ()).index(name) for name in keep]
        while records := list(itertools.islice(self._records, rows)):
            for i, record in enumerate(records):
                if len(record) != self.width:
                    raise UsageError(
                        f"{self._path}: row {done + i + 1} has {len(record)} fields, expected {self.width}"
                    )
            columns = [[record[i] for record in records] for i in kept]
            if not everything:
                records = [[record[i] for i in read] for record in records]
            if self._na:
                records = list(map(self._without_na, records))
            if self._spec.category_order:
                self._spec = self._placed(records)
            with in_file(self._path, done):
                values = self._values(records)
            yield values, columns
            done += len(records)

    def _placed(self, records: list[list[str]]) -> InputSpec:
        """Return the model's input, with categories placed by the words of the first rows."""
        fields = enumerate(zip(*records, strict=True))
        words = [i for i, column in fields if any(_number(field) is None for field in column)]
        try:
            return self._spec.placed(words, words)
        except InputError as error:
            raise UsageError(f"{self._path}: {error}") from error

    def _values(self, records: list[list[str]]) -> np.ndarray:
        width = len(records[0])
        if not self._spec.categories:
            flat = map(float, itertools.chain.from_iterable(records))
            try:
                return np.fromiter(flat, np.float64, len(records) * width).reshape(-1, width)
            except ValueError:  # an empty field, or a word
                pass
        columns = [self._column(i, list(column)) for i, column in enumerate(zip(*records, strict=True))]
        if all(isinstance(column, np.ndarray) for column in columns):
            return np.column_stack(columns)
        block = np.empty((len(records), width), object)
        for i, column in enumerate(columns):
            block[:, i] = column
        return block

    def _column(self, index: int, fields: list[str]) -> np.ndarray | list[Any]:
        known = self._spec.categories.get(index)
        if known is None:
            return np.array([self._parse(index, field, i) for i, field in enumerate(fields)])
        if not known:  # the model does not read this column
            return np.array(
                [number if (number := _number(field)) is not None else np.nan for field in fields]
            )
        empty = self._empty.get(index)
        spelt = any(isinstance(value, str) for value in known)
        values: list[Any] = (
            [field if field else empty for field in fields]
            if spelt
            else [self._parse(index, field, i) for i, field in enumerate(fields)]
        )
        if self._spec.numbers_are_categories:
            return values if spelt else np.array(values)
        # The model expects codes in a numeric array.
        return codes(values, self._spec, index)

    def _parse(self, index: int, field: str, row: int) -> float:
        value = _number(field)
        if value is None:
            raise InputError(
                f"row {ROW}, {column_name(self._spec, index)}: {field!r} is not a number; if it stands for "
                f"a missing value, say --na {shlex.quote(field)}",
                row,
            )
        return value

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _number(field: str) -> float | None:
    """Return the field's number: NaN for an empty field, None for other text."""
    try:
        return float(field)
    except ValueError:
        text = field.strip().lower()
        return float("nan") if not text else _WORDS.get(text)
