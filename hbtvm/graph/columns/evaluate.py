"""Tables computed in plain numpy, step by step as the library does: the oracle, and what runs on the host.

Raw columns are arrays of numbers (float32 or float64, missing is NaN) or of Python values (``object``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

import numpy as np

from hbtvm.errors import InputError
from hbtvm.graph.columns.curves import Bins, Quantile
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

_HIDES = (Above, Bins, Clip, Quantile)  # steps that make other numbers of NaN or infinity

_TAKES_ALL = (Cast, Encode, Fill, Function, ZeroIsMissing)
"""Steps that the library computes without looking for NaN or infinity."""


class Evaluator:
    """Computes columns of one batch of rows; what columns share is computed once.

    `raw`: the input's columns by index, shape (n,) each. Those that nothing reads may be left out.
    `dtype`: type of numbers that come from values: codes and looked-up numbers.
    """

    def __init__(self, raw: Mapping[int, np.ndarray] | Sequence[np.ndarray], dtype: str = "float64") -> None:
        self._raw, self._dtype = raw, np.dtype(dtype)
        self._known: dict[tuple[Any, ...], np.ndarray] = {}
        self._made: dict[int, np.ndarray] = {}

    def table(self, table: Table) -> np.ndarray:
        """All columns of a table, shape (n, width), in their common type; C-contiguous."""
        values = [self.checked(column) for column in table.columns]
        out = np.empty((len(values[0]), len(values)), np.result_type(*values))
        for i, one in enumerate(values):
            out[:, i] = one
        return out

    def checked(self, column: Column) -> np.ndarray:
        """A table's column, shape (n,).

        Raises `InputError` if it has values that the table refuses.
        """
        values = self.column(column.source, column.steps)
        _check(column, values)
        if any(isinstance(step, _HIDES) for step in column.steps):
            read = tuple(takewhile(lambda step: isinstance(step, _TAKES_ALL), column.steps))
            _check(column, self.column(column.source, read))
        return values

    def column(self, source: Raw | Made, steps: tuple[Step, ...]) -> np.ndarray:
        """A column after some steps, shape (n,)."""
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
        """What a row operation makes, shape (n, width)."""
        if id(operation) not in self._made:
            x = self.table(operation.inputs)
            if x.dtype.kind != "f" and not operation.takes_values:
                # Python values in a column that takes numbers.
                x = numbers_of(x.ravel().tolist(), self._dtype).reshape(x.shape)
            self._made[id(operation)] = operation.reference(x)
        return self._made[id(operation)]

    def give(self, operation: RowOperation, values: np.ndarray) -> None:
        """Put down what an operation makes, shape (n, width), where other code has computed it."""
        self._made[id(operation)] = values

    def _step(self, step: Step, x: np.ndarray) -> np.ndarray:
        # A column of texts is one of numbers where all of its texts are missing.
        text = isinstance(step, Fill) and isinstance(step.value, str)
        if x.dtype.kind == "f" and not text:
            return step.apply(x)
        return _of_values(step, x, self._dtype)


def _of_values(step: Step, x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """A step on Python values; all but the first kinds take numbers only."""
    values = x.tolist()
    if isinstance(step, Fill | IsMissing) and step.numbers:
        return step.apply(numbers_of(values, dtype))
    if isinstance(step, Encode):
        return np.array([step.code(value) for value in values], dtype)
    if isinstance(step, IsMissing):
        return np.array([is_missing(value, step.missing) for value in values], dtype)
    if isinstance(step, Fill):
        out = np.empty(len(values), object)
        out[:] = [step.value if is_missing(value, step.missing) else value for value in values]
        return out
    return step.apply(numbers_of(values, dtype))


def numbers_of(values: Sequence[Any], dtype: np.dtype | str = "float64") -> np.ndarray:
    """Python values as numbers; None is NaN.

    Raises `InputError` if one is no number.
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


def _check(column: Column, x: np.ndarray) -> None:
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
