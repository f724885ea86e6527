"""Requests of plain JSON, and their rows as a model's rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import orjson

from hbtvm.errors import InputError
from hbtvm.runtime.feeds.file_columns import known_values
from hbtvm.runtime.model import Model

_SCALARS: frozenset[type] = frozenset((str, int, float, bool, type(None)))
_NESTED: frozenset[type] = frozenset((list, dict))


class RowsRequest(NamedTuple):
    """A parsed request of plain JSON."""

    rows: list[Any]
    outputs: tuple[str, ...]  # names of requested outputs; if empty, predictions and probabilities
    size: int  # bytes of the body


def read_rows(body: bytes | bytearray) -> RowsRequest:
    """Read the body of a request.

    Raises `InputError` if it is not an object with a list of "rows" and, optionally, of "outputs".
    """
    try:
        content = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise InputError(f"the request is not JSON ({error}).") from error
    rows = content.get("rows") if type(content) is dict else None
    if type(rows) is not list:
        raise InputError('the request has no list of "rows"; expected {"rows": [...]}.')
    extra = content.keys() - {"rows", "outputs"}
    if extra:
        raise InputError(f'the request has {min(extra)!r:.80}; expected "rows" and "outputs" only.')
    outputs = content.get("outputs", [])
    if type(outputs) is not list or not all(type(name) is str for name in outputs):
        raise InputError('"outputs" is not a list of names.')
    if len(set(outputs)) < len(outputs):
        raise InputError('an output occurs twice in "outputs".')
    return RowsRequest(rows, tuple(outputs), len(body))


class JsonRows:
    """Converts JSON rows to a model's rows.

    `known`: the categories of each column that the model reads, by index; see `known_values`.
    `width`: values of a row.
    """

    def __init__(self, model: Model) -> None:
        spec = model.package.input
        self.known = known_values(spec, model.pipeline)
        self.names = spec.feature_names
        self.width = spec.n_features
        self._values = spec.rows_are_values

    @property
    def example(self) -> Any:
        """Return a row: known categories, zeros, and a short text in columns of texts."""
        values = [next((value for value in known if value != ""), "a text") if known else 0.0
                  for known in self.known.values()]  # fmt: skip
        if self._values:
            return values[0]
        if self.names is not None:
            return {self.names[at]: value for at, value in zip(self.known, values, strict=True)}
        row: list[Any] = [0.0] * self.width
        for at, value in zip(self.known, values, strict=True):
            row[at] = value
        return row

    def of(self, rows: list[Any]) -> Any:
        """Return the model's rows: a list of values, a dict, a list of dicts, or a matrix.

        Raises `InputError` if the rows are not values, or are neither all objects nor all lists.
        """
        if self._values:
            self._require(set(map(type, rows)), _SCALARS, "a text")
            return rows
        kinds = set(map(type, rows))
        if kinds == {dict} and self.names is not None:
            for row in rows:
                for value in row.values():
                    if type(value) in _NESTED:
                        raise InputError(_nested(rows))
            return rows[0] if len(rows) == 1 else rows
        if kinds == {list}:
            return self._matrix(rows)
        if not rows:
            raise InputError('"rows" is empty; expected at least one row.')
        if self.names is None:
            raise InputError(
                f"each row should be a list of {self.width} values: this model was trained without column "
                "names."
            )
        raise InputError("each row should be an object, with a value for each column by name.")

    def _matrix(self, rows: list[list[Any]]) -> np.ndarray:
        for at, row in enumerate(rows):
            if len(row) != self.width:
                raise InputError(f"row {at} has {len(row):,} values, expected {self.width:,}.")
        kinds = {type(value) for row in rows for value in row}
        self._require(kinds, _SCALARS, "a number or a text")
        if str not in kinds:
            return np.array(rows, np.float64)
        matrix = np.empty((len(rows), self.width), object)
        matrix[:] = rows
        return matrix

    @staticmethod
    def _require(kinds: set[type], known: frozenset[type], expected: str) -> None:
        if not kinds <= known:
            raise InputError(f"a row holds an object or a list, where {expected} is expected.")


def _nested(rows: list[dict[str, Any]]) -> str:
    """Return the sentence about the first value that is a list or an object."""
    at, name = next(
        (at, name) for at, row in enumerate(rows) for name, value in row.items() if type(value) in _NESTED
    )
    return f"row {at}, column {name!r:.80}: it is a list or an object, expected a number, a text or null."
