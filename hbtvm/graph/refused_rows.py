"""Types of rows that a model refuses, as its library computes in them with fewer digits or other results.

numpy's functions of small integers give float16 or float32, and others wrap (``square``) or divide integers
(``reciprocal``), where kernels compute in float64.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

INTEGERS = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
"""Types that may be refused."""

_EXACT = 1 << 53
"""float64 holds every integer up to this magnitude."""


@dataclass(frozen=True)
class RefusedTypes:
    """Types that some of the input's columns may not have.

    Attributes
    ----------
    columns
        Indices of the columns, ascending.
    types
        Some of `INTEGERS`.
    step
        The step that reads them, in the words of an error.
    together
        Whether the type that counts is the common one of these columns, as of an array; else each column's.
    """

    columns: tuple[int, ...]
    types: tuple[str, ...]
    step: str
    together: bool = False

    def to_json(self) -> list[Any]:
        """Return a list of plain values from which `from_json` makes an equal object."""
        return [list(self.columns), list(self.types), self.step, self.together]

    @classmethod
    def from_json(cls, data: Any, n_features: int) -> RefusedTypes:
        """Return the object whose `to_json` is given.

        Raises
        ------
        ValueError
            If a value cannot be.
        """
        columns, types, step, together = data
        if any(type(column) is not int or not 0 <= column < n_features for column in columns):
            raise ValueError(f"input specification: types are refused of the columns {columns!r}")
        if not set(types) <= set(INTEGERS) or not isinstance(step, str) or type(together) is not bool:
            raise ValueError(f"input specification: refuses the types {types!r}")
        return cls(tuple(columns), tuple(types), step, together)


def differing(function: Callable[[np.ndarray], np.ndarray]) -> tuple[str, ...]:
    """Return the types of integers for which a function has other values, or fewer digits, than for float64.

    Parameters
    ----------
    function
        From an array of any type of numbers to one of the same shape; an error is a difference.
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
