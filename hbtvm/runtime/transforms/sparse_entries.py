"""The entries of a table's sparse rows: numbers, and at most one entry for each encoded value.

An encoder's columns for one value have at most one entry in a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from hbtvm.graph.columns.curves import Bins
from hbtvm.graph.columns.evaluate import of_numbers
from hbtvm.graph.columns.steps import Cast, Encode, Equals, Step
from hbtvm.graph.columns.table import Column, Raw, Table
from hbtvm.runtime.codes.coder import folds

_INT32 = np.dtype(np.int32)


@dataclass
class Entry:
    """At most one entry of each row."""

    column: Column  # its source, and the steps that make codes, or all steps
    at: int  # the table's first column of the entry
    # `places`, `values`: by code, the table's column (-1 for none) and the value there; None for an unchanged
    # number, whose column is `at`
    places: np.ndarray | None = None
    values: np.ndarray | None = None


def is_known(table: Table) -> bool:
    """Return whether the common dtype of a table's columns, or of the numbers that it reads, is known."""
    casts = {_last_cast(column.steps) for column in table.columns}
    if None not in casts or "float64" in casts:
        return True
    # Codes of values that are not numbers have no dtype.
    return all(column.encoder is None or _last_cast(column.steps) for column in table.columns)


def dtype_of(table: Table) -> np.dtype | None:
    """Return the common dtype of a table's columns; None for that of the numbers that it reads."""
    casts = {_last_cast(column.steps) for column in table.columns}
    if "float64" in casts:
        return np.dtype(np.float64)
    return None if None in casts else np.dtype(np.float32)


def entries_of(table: Table) -> list[Entry]:
    """Return the entries of a table's rows, from left to right."""
    entries: list[Entry] = []
    previous: tuple[Any, ...] | None = None
    for at, column in enumerate(table.columns):
        coded = _coded(column)
        if coded is None:
            entries.append(Entry(column, at))
            previous = None
            continue
        read, count, codes, values = coded
        key = (read.source, read.allow_nan, read.allow_inf, *map(id, read.steps))
        last = entries[-1] if entries else None
        if key != previous or last is None or last.places is None or (last.places[codes] >= 0).any():
            last = Entry(read, at, np.full(count, -1, _INT32), np.zeros(count))
            entries.append(last)
            previous = key
        assert last.places is not None and last.values is not None
        last.places[codes], last.values[codes] = at, values
    return entries


def _coded(column: Column) -> tuple[Column, int, np.ndarray, np.ndarray] | None:
    """Return a column's coder, number of codes, codes of nonzero numbers, and these numbers; else None."""
    if not isinstance(column.source, Raw):
        return None
    encodes = [i for i, step in enumerate(column.steps) if isinstance(step, Encode)]
    bins = [i for i, step in enumerate(column.steps) if isinstance(step, Bins)]
    if encodes:
        cut = encodes[0]
        read = Column(column.source, column.steps[: cut + 1])
        if not folds(read.steps):
            return None
    elif bins and not column.allow_nan:
        # (Bins keep NaN for missing numbers.)
        cut = bins[-1]
        read = replace(column, steps=column.steps[: cut + 1])
    else:
        return None
    last, rest = column.steps[cut], column.steps[cut + 1 :]
    count = len(last.edges) + 1 if isinstance(last, Bins) else len(last)  # type: ignore[arg-type]
    codes, values = _not_zero(rest, count)
    # Refused numbers are searched for in the source.
    if (not column.allow_nan and np.isnan(values).any()) or (not column.allow_inf and np.isinf(values).any()):
        return None
    return read, count, codes, values


def _not_zero(steps: tuple[Step, ...], count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the codes that steps turn into nonzero numbers, and the numbers, float64."""
    if steps and isinstance(steps[0], Equals):
        # There may be a column for each of many codes, so do not compute all codes for each column.
        zero, value = of_numbers(steps[1:], np.array([0.0, 1.0])).tolist()
        if zero == 0:
            codes = np.array(steps[0].codes if value != 0 else (), np.intp)
            return codes, np.full(len(codes), value)
    values = of_numbers(steps, np.arange(float(count))).astype(np.float64)
    codes = np.flatnonzero(values)
    return codes, values[codes]


def _last_cast(steps: Sequence[Step]) -> str | None:
    """Return the dtype of a column's last rounding."""
    return next((step.dtype for step in reversed(steps) if isinstance(step, Cast)), None)
