"""What sparse rows of a table consist of: at most one entry for each value that is encoded, and numbers.

What an encoder makes of one value is at most one entry of a row, whatever number of columns it has.
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

    column: Column  # what is read: its source and the steps that make codes, or all of them
    at: int  # the table's first column of the entry
    # `places`, `values`: by code, the table's column (-1 for none) and the value there; None for a number as
    # it comes, whose column is `at`
    places: np.ndarray | None = None
    values: np.ndarray | None = None


def is_known(table: Table) -> bool:
    """Whether the type of a table's columns together is known, or that of the numbers that are read."""
    casts = {_last_cast(column.steps) for column in table.columns}
    if None not in casts or "float64" in casts:
        return True
    # Codes of values that are no numbers have no type of their own.
    return all(column.encoder is None or _last_cast(column.steps) for column in table.columns)


def dtype_of(table: Table) -> np.dtype | None:
    """The type of a table's columns together; None for that of the numbers that are read."""
    casts = {_last_cast(column.steps) for column in table.columns}
    if "float64" in casts:
        return np.dtype(np.float64)
    return None if None in casts else np.dtype(np.float32)


def entries_of(table: Table) -> list[Entry]:
    """What a table's rows consist of, from left to right."""
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
    """What makes codes of a column, how many, those that give a number but 0, and which; None for others."""
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
        # (What comes of bins is NaN where a number is missing.)
        cut = bins[-1]
        read = replace(column, steps=column.steps[: cut + 1])
    else:
        return None
    last, rest = column.steps[cut], column.steps[cut + 1 :]
    count = len(last.edges) + 1 if isinstance(last, Bins) else len(last)  # type: ignore[arg-type]
    codes, values = _not_zero(rest, count)
    # Numbers that are refused are looked for where they are.
    if (not column.allow_nan and np.isnan(values).any()) or (not column.allow_inf and np.isinf(values).any()):
        return None
    return read, count, codes, values


def _not_zero(steps: tuple[Step, ...], count: int) -> tuple[np.ndarray, np.ndarray]:
    """The codes of which steps make a number but 0, and the numbers, float64."""
    if steps and isinstance(steps[0], Equals):
        # As there may be a column for each of many codes, not all of them are computed for each.
        zero, one = of_numbers(steps[1:], np.array([0.0, 1.0])).tolist()
        if zero == 0:
            codes = np.array(steps[0].codes if one != 0 else (), np.intp)
            return codes, np.full(len(codes), one)
    values = of_numbers(steps, np.arange(float(count))).astype(np.float64)
    codes = np.flatnonzero(values)
    return codes, values[codes]


def _last_cast(steps: Sequence[Step]) -> str | None:
    """The type that the last rounding gives a column."""
    return next((step.dtype for step in reversed(steps) if isinstance(step, Cast)), None)
