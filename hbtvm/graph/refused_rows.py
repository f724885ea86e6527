"""Types of rows that a model refuses, as its library's results for them differ from float64 results.

numpy's functions of small integers return float16 or float32; others wrap (``square``) or divide integers
(``reciprocal``). Kernels compute in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

import numpy as np

from hbtvm.codec import Index, Via

Integer = Literal["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
INTEGERS: tuple[str, ...] = get_args(Integer)
_EXACT = 1 << 53  # float64 holds every integer up to this magnitude


@dataclass(frozen=True)
class RefusedTypes:
    """Refused types of some of the input's columns."""

    columns: tuple[Index, ...]  # ascending
    types: tuple[Annotated[str, Via(Integer)], ...]
    step: str  # the step that reads them, for errors
    together: bool = False  # whether the columns' common type counts, as in an array; else each column's


def differing(function: Callable[[np.ndarray], np.ndarray]) -> tuple[str, ...]:
    """Return the types of integers for which a function's results differ from its float64 results.

    `function`: from an array of any type of numbers to an array of the same shape; an error is a difference.
    """
    return tuple(name for name in INTEGERS if not _agrees(function, _samples(np.dtype(name))))


def _agrees(function: Callable[[np.ndarray], np.ndarray], values: np.ndarray) -> bool:
    try:
        with np.errstate(all="ignore"):
            result, expected = function(values), function(values.astype(np.float64))
    except (TypeError, ValueError, OverflowError):
        return False
    if result.dtype.kind == "f" and result.dtype != np.float64:
        return False
    return np.array_equal(result.astype(np.float64), expected, equal_nan=True)


def _samples(dtype: np.dtype) -> np.ndarray:
    """Return all values of a small type; of others the ends (up to 2⁵³), small values, and powers of 2."""
    if dtype.kind == "b":
        return np.array([False, True])
    limits = np.iinfo(dtype)
    low, high = max(limits.min, -_EXACT), min(limits.max, _EXACT)
    if high - low < 256:
        return np.arange(low, high + 1).astype(dtype)
    powers = [sign << bit for bit in range(54) for sign in (1, -1)]
    values = {low, low + 1, high - 1, high, *range(-20, 21), *powers}
    return np.array(sorted(value for value in values if low <= value <= high), dtype)


def common(types: Iterable[str | None]) -> str | None:
    """Return the common type of columns; None if some are not numbers."""
    names = list(types)
    known = {*INTEGERS, "float16", "float32", "float64"}
    return str(np.result_type(*names)) if names and known.issuperset(names) else None
