"""Evaluation of tables in plain numpy, step by step as the library does: the oracle, and the host's code.

Raw columns are arrays of numbers (float32 or float64, NaN if missing) or of Python values (``object``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

import numpy as np

from hbtvm.errors import InputError
from hbtvm.graph.columns.curves import Bins, Quantile
from hbtvm.graph.columns.dates import DatePart, Dates
from hbtvm.graph.columns.hashes import HashText
from hbtvm.graph.columns.steps import (
    Above,
    Cast,
    Clip,
    Encode,
    Fill,
    Function,
    IsMissing,
    Step,
    ZeroIsMissing,
    is_missing,
)
from hbtvm.graph.columns.table import Column, Made, Raw, RowOperation, Table

_HIDES = (Above, Bins, Clip, Quantile)  # steps that turn NaN or infinity into other numbers

_TAKES_ALL = (Cast, Encode, Fill, Function, ZeroIsMissing)
"""Steps that the library computes without a check for NaN or infinity."""


class Evaluator:
    """Computes columns of a batch of rows; steps that columns share are computed once.

    `raw`: the input's columns by index, shape (n,) each; unread columns may be absent.
    `dtype`: type of numbers that steps make of values: codes and looked-up numbers.
    """

    def __init__(self, raw: Mapping[int, np.ndarray] | Sequence[np.ndarray], dtype: str = "float64") -> None:
        self._raw, self._dtype = raw, np.dtype(dtype)
        self._known: dict[tuple[Any, ...], np.ndarray] = {}
        self._operations: dict[int, np.ndarray] = {}

    def table(self, table: Table) -> np.ndarray:
        """Return a table's columns, shape (n, width), in their common type; C-contiguous."""
        values = [self.checked(column) for column in table.columns]
        out = np.empty((len(values[0]), len(values)), np.result_type(*values))
        for i, column in enumerate(values):
            out[:, i] = column
        return out

    def checked(self, column: Column) -> np.ndarray:
        """Return a table's column, shape (n,).

        Raises `InputError` if it has values that the table refuses.
        """
        values = self.column(column.source, column.steps)
        _check(column, values)
        if any(isinstance(step, _HIDES) for step in column.steps):
            read = tuple(takewhile(lambda step: isinstance(step, _TAKES_ALL), column.steps))
            _check(column, self.column(column.source, read))
        return values

    def column(self, source: Raw | Made, steps: tuple[Step, ...]) -> np.ndarray:
        """Return a column after some steps, shape (n,)."""
        if not steps:
            return self._source(source)
        key = (source, *map(id, steps))
        if key not in self._known:
            before = self.column(source, steps[:-1])
            self._known[key] = self._step(steps[-1], before)
        return self._known[key]

    def _source(self, source: Raw | Made) -> np.ndarray:
        if isinstance(source, Raw):
            return self._raw[source.index]
        return self.operation(source.operation)[:, source.index]

    def operation(self, operation: RowOperation) -> np.ndarray:
        """Return the columns of a row operation, shape (n, width)."""
        if id(operation) not in self._operations:
            x = self.table(operation.inputs)
            if x.dtype.kind != "f" and not operation.takes_values:
                # Python values in columns of numbers.
                x = numbers_of(x.ravel().tolist(), self._dtype).reshape(x.shape)
            self._operations[id(operation)] = operation.reference(x)
        return self._operations[id(operation)]

    def give(self, operation: RowOperation, values: np.ndarray) -> None:
        """Store an operation's columns, shape (n, width), that other code has computed."""
        self._operations[id(operation)] = values

    def _step(self, step: Step, x: np.ndarray) -> np.ndarray:
        # A column of texts has a type of numbers if all texts are missing.
        text = isinstance(step, Fill) and isinstance(step.value, str)
        if x.dtype.kind == "f" and not text:
            return step.apply(x)
        if isinstance(step, Dates):
            return step.of_values(x)
        if isinstance(step, DatePart) and x.dtype.kind == "M":
            return step.apply(x)
        _refuse_dates(x)
        return _of_values(step, x, self._dtype)


def _of_values(step: Step, x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Apply a step to Python values."""
    values = x.tolist()
    if isinstance(step, Fill | IsMissing) and step.numbers:
        return step.apply(numbers_of(values, dtype))
    if isinstance(step, Encode):
        return np.array([step.code(value) for value in values], dtype)
    if isinstance(step, HashText):
        return step.apply(x)
    if isinstance(step, IsMissing):
        return np.array([is_missing(value, step.missing) for value in values], dtype)
    if isinstance(step, Fill):
        out = np.empty(len(values), object)
        out[:] = [step.value if is_missing(value, step.missing) else value for value in values]
        return out
    return step.apply(numbers_of(values, dtype))


def numbers_of(values: Sequence[Any], dtype: np.dtype | str = "float64") -> np.ndarray:
    """Return Python values as numbers; None becomes NaN.

    Raises `InputError` if a value is not a number.
    """
    try:
        return np.array([np.nan if value is None else float(value) for value in values], dtype)
    except (TypeError, ValueError):
        for value in values:
            try:
                float(0 if value is None else value)
            except (TypeError, ValueError):
                raise InputError(f"expected numbers, got {value!r}.") from None
        raise


def _refuse_dates(x: np.ndarray) -> None:
    if x.dtype.kind == "M":
        raise InputError(f"expected numbers or categories, got {x.dtype}.")


def _check(column: Column, x: np.ndarray) -> None:
    _refuse_dates(x)
    if x.dtype.kind != "f":
        return
    if not column.allow_nan and np.isnan(x).any():
        raise InputError("got NaN, expected no missing values.")
    if not column.allow_inf and np.isinf(x).any():
        raise InputError("got infinity, expected finite numbers.")


def evaluate(table: Table, raw: Sequence[np.ndarray], dtype: str = "float64") -> np.ndarray:
    """Compute a table; see `Evaluator`."""
    return Evaluator(raw, dtype).table(table)


def of_numbers(steps: Sequence[Step], x: np.ndarray) -> np.ndarray:
    """Apply steps to numbers."""
    for step in steps:
        x = step.apply(x)
    return x
