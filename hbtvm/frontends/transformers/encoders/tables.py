"""Columns that look up numbers by category, with numbers for missing and for unknown values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from hbtvm.errors import ModelError
from hbtvm.frontends.pickles.records import kind_of
from hbtvm.frontends.transformers.encoders.categories import Known, encode
from hbtvm.frontends.transformers.values import is_na
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.steps import Cast, Equals, Lookup, Step
from hbtvm.graph.columns.table import Column

Numbers = Sequence[float]
"""The numbers of the output columns."""

_FEW = 4  # up to this many codes, a column of marks needs no table


@dataclass(frozen=True)
class Coding:
    """Numbers by category; None for values that the library refuses."""

    known: Mapping[Any, Numbers]  # by category: strings, numbers and bools
    missing: Numbers | None
    unknown: Numbers | None
    none: Numbers | None = None  # the numbers of None, if they are not those of other missing values


def side_by_side(codings: Sequence[Coding]) -> Coding:
    """Return a coding with the columns of several, which have the same categories."""

    def joined(rows: Sequence[Numbers | None]) -> Numbers | None:
        return (
            None if any(row is None for row in rows) else [x for row in rows if row is not None for x in row]
        )

    known = {value: joined([part.known[value] for part in codings]) or () for value in codings[0].known}
    return Coding(
        known, joined([part.missing for part in codings]), joined([part.unknown for part in codings])
    )


def coded(column: Column, coding: Coding, where: Where) -> list[Column]:
    """Return the columns that look up a column's values."""
    values = tuple(coding.known)
    rows = list(coding.known.values())
    errors: Literal["error", "code", "missing"] = "error" if coding.unknown is None else "code"
    if coding.missing is not None:
        values += (math.nan, None)
        rows += [coding.missing, coding.missing if coding.none is None else coding.none]
    elif coding.unknown is not None:
        errors = "missing"
        values += (math.nan,)
        rows.append(coding.unknown)
    width = len(coding.unknown or coding.missing or next(iter(rows), ()))
    rows.append([0.0] * width if coding.unknown is None else coding.unknown)
    table = np.array(rows, np.float64).reshape(len(rows), width)
    codes = encode(Known(values, (), np.arange(len(values)), None), errors, column, where)
    return [codes.then(_step(numbers), Cast("float64")) for numbers in table.T]


def _step(numbers: np.ndarray) -> Step:
    """Return the step from codes to numbers: marks of few codes, or a table."""
    ones = np.flatnonzero(numbers == 1)
    if len(ones) <= _FEW and np.count_nonzero(numbers) == len(ones):
        return Equals(tuple(ones.tolist()))
    return Lookup(np.ascontiguousarray(numbers))


def category(value: Any) -> Any:
    """Return a category as a Python value: a string, a number or a bool; NaN and None if missing.

    Raises `ModelError` if it is anything else.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if is_na(value):
        return None
    raise ModelError(f"expected strings, numbers or bools as categories, got {kind_of(value)}.")


def is_missing(value: Any) -> bool:
    """Return whether a category stands for missing values."""
    return value is None or value != value
