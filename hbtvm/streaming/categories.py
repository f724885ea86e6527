"""Conversion of category values to codes."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

from hbtvm.errors import ROW, InputError
from hbtvm.graph.graph import InputSpec


def codes(values: Iterable[object], spec: InputSpec, index: int) -> np.ndarray:
    """Return the codes of a column's values.

    `values`: one value per row; None or NaN if missing.
    `spec`, `index`: the model's input, and the column's index.
    Returns float64, shape (n,); NaN for missing values, and for unknown values if the library treats them as
    missing. Raises `InputError` if a value is unknown and the library refuses unknown values.
    """
    known: dict[object, float] = {value: code for code, value in enumerate(spec.categories[index])}

    def code(value: object, row: int) -> float:
        known_code = known.get(value)
        if known_code is not None:
            return known_code
        missing = value is None or value != value
        if not missing and spec.unknown_category == "error":
            listed = ", ".join(map(repr, list(known)[:5])) + (", ..." if len(known) > 5 else "")
            raise InputError(
                f"row {ROW}, {column_name(spec, index)}: the category {value!r} was not in the training "
                f"data; known are {listed}",
                row,
            )
        return math.nan

    return np.array([code(value, i) for i, value in enumerate(values)], np.float64)


def column_name(spec: InputSpec, index: int) -> str:
    """Return the name of a model's column for errors."""
    names = spec.feature_names
    return f"column {index + 1}" if names is None else f"column {names[index]!r}"


def numbers_of(spec: InputSpec) -> set[int]:
    """Return the columns whose categories are numbers.

    Parquet does not mark them as categories: it holds their values, and the model needs codes.
    """
    return {
        index
        for index, known in spec.categories.items()
        if known and not (spec.numbers_are_categories or any(isinstance(value, str) for value in known))
    }
