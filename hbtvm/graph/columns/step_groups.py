"""Steps of one kind on several columns, as one function of a matrix."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hbtvm.graph.columns.curves import Bins, NormalQuantile, Power, Quantile
from hbtvm.graph.columns.steps import (
    ARITHMETIC,
    UFUNCS,
    Above,
    Arithmetic,
    Cast,
    Clip,
    Equals,
    Fill,
    Function,
    IsMissing,
    Lookup,
    Step,
    Within,
    ZeroIsMissing,
    missing_in,
)

FLOATS = (np.dtype(np.float32), np.dtype(np.float64))  # steps' types of numbers

Apply = Callable[[np.ndarray], np.ndarray]
"""From numbers of a type of `FLOATS`, shape (columns, n), to such numbers."""

_FEW_CODES = 4  # a column that is 1 for more codes is computed alone


def kind_of(step: Step) -> Any:
    """Return a key that is equal for steps that can be computed together; None for other steps."""
    kind = type(step)
    if isinstance(step, Arithmetic):
        return kind, step.operation, step.cast
    if isinstance(step, Fill):
        if isinstance(step.value, bool) or not isinstance(step.value, int | float | np.number):
            return None
        return kind, type(step.missing), repr(step.missing)
    if isinstance(step, IsMissing):
        return kind, type(step.missing), repr(step.missing)
    if isinstance(step, Cast):
        return kind, step.dtype
    if isinstance(step, Function):
        return kind, step.name
    if isinstance(step, Above | Within):
        # numpy compares with a bound that is not a Python float in another type than the column's.
        bounds = (step.threshold,) if isinstance(step, Above) else (step.low, step.high)
        return kind if all(type(bound) is float for bound in bounds) else None
    if isinstance(step, Equals):
        return (kind, len(step.codes)) if 0 < len(step.codes) <= _FEW_CODES else None
    if isinstance(step, Quantile):
        return kind, step.ties, step.margin
    if isinstance(step, Power):
        return kind, step.method, step.narrow
    if isinstance(step, Clip | ZeroIsMissing | Lookup | Bins | NormalQuantile):
        return kind
    return None


def together(steps: Sequence[Any]) -> Apply:
    """Return steps of one kind (`kind_of`), one for each column, as a function of the columns' matrix."""
    step = steps[0]
    if isinstance(step, Arithmetic):
        return _arithmetic(steps)
    if isinstance(step, Clip):
        lows, highs = _constants([step.low for step in steps]), _constants([step.high for step in steps])
        return lambda x: x.clip(lows[x.dtype], highs[x.dtype])
    if isinstance(step, Within):
        least, most = _constants([step.low for step in steps]), _constants([step.high for step in steps])
        return lambda x: np.where((x >= least[x.dtype]) & (x <= most[x.dtype]), x, x.dtype.type(np.nan))
    if isinstance(step, Above):
        thresholds = _constants([step.threshold for step in steps])
        return lambda x: (x > thresholds[x.dtype]).astype(x.dtype)
    if isinstance(step, Fill):
        values, missing = _constants([step.value for step in steps]), step.missing
        return lambda x: np.where(missing_in(x, missing), values[x.dtype], x)
    if isinstance(step, Function):
        ufunc: Apply = UFUNCS[step.name]
        return ufunc
    if isinstance(step, Equals):
        return _equals(steps)
    if isinstance(step, Lookup):
        return _lookup(steps)
    if isinstance(step, Bins | Quantile | Power):
        return lambda x: np.stack([step.apply(row) for step, row in zip(steps, x, strict=True)])
    # The other kinds have no constants.
    whole: Apply = step.apply
    return whole


def _arithmetic(steps: Sequence[Arithmetic]) -> Apply:
    ufunc, cast = ARITHMETIC[steps[0].operation], steps[0].cast
    constants = _constants([step.constant for step in steps])
    double = constants[FLOATS[1]]

    def apply(x: np.ndarray) -> np.ndarray:
        if cast or x.dtype == FLOATS[1]:
            result: np.ndarray = ufunc(x, constants[x.dtype])
        else:
            result = np.empty_like(x)
            ufunc(x, double, out=result, casting="same_kind")
        return result

    return apply


def _equals(steps: Sequence[Equals]) -> Apply:
    constants = [_constants(codes) for codes in zip(*(step.codes for step in steps), strict=True)]

    def apply(x: np.ndarray) -> np.ndarray:
        equal = x == constants[0][x.dtype]
        for more in constants[1:]:
            equal |= x == more[x.dtype]
        result: np.ndarray = equal.astype(x.dtype)
        missing = np.isnan(x)
        if missing.any():
            result[missing] = np.nan
        return result

    return apply


def _lookup(steps: Sequence[Lookup]) -> Apply:
    values = np.concatenate([step.values for step in steps])
    first = np.cumsum([0, *(len(step.values) for step in steps[:-1])])[:, None]

    def apply(x: np.ndarray) -> np.ndarray:
        result: np.ndarray = values[first + x.astype(np.int64)].astype(x.dtype)
        return result

    return apply


def _constants(values: Sequence[Any]) -> dict[np.dtype, np.ndarray]:
    """Return numbers in each type of `FLOATS`, shape (columns, 1)."""
    with np.errstate(over="ignore"):
        return {dtype: np.array([[dtype.type(value)] for value in values], dtype) for dtype in FLOATS}
