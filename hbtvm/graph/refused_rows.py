"""Types of rows that a model refuses, as its library computes in them with fewer digits or other results.

numpy's functions of small integers give float16 or float32, and others wrap (``square``) or divide integers
(``reciprocal``), where kernels compute in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Annotated, Literal, get_args

import numpy as np

from hbtvm.codec import Index, Via

Integer = Literal["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
INTEGERS: tuple[str, ...] = get_args(Integer)  # types that may be refused
_EXACT = 1 << 53  # float64 holds every integer up to this magnitude


@dataclass(frozen=True)
class RefusedTypes:
    """Types that some of the input's columns may not have."""

    columns: tuple[Index, ...]  # indices of the columns, ascending
    types: tuple[Annotated[str, Via(Integer)], ...]  # some of `INTEGERS`
    step: str  # the step that reads them, in the words of an error
    # Whether the type that counts is the common one of these columns, as of an array; else each column's
    together: bool = False


def differing(function: Callable[[np.ndarray], np.ndarray]) -> tuple[str, ...]:
    """Return the types of integers for which a function has other values, or fewer digits, than for float64.

    `function`: from an array of any type of numbers to one of the same shape; an error is a difference.
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
    """Every value of a small type; of others the ends (up to 2⁵³), ordinary values, and powers of 2."""
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
    """Return the type that columns have together; None if it is not a type of numbers."""
    names = list(types)
    known = {*INTEGERS, "float16", "float32", "float64"}
    return str(np.result_type(*names)) if names and known.issuperset(names) else None
