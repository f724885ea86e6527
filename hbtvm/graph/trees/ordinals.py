"""Ordinals of floats, and bisection over them, which moves thresholds through functions exactly.

The ordinal of a float is a whole number: larger floats have larger ordinals, neighbours differ by 1, -0.0 has
-1 and 0.0 has 0. Bisection over ordinals finds the last float for which a monotone function is at most a
threshold, whatever roundings the function has.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

_INTEGER = {"float32": np.int32, "float64": np.int64}
_MOST = {"float32": np.int32(2**31 - 1), "float64": np.int64(2**63 - 1)}  # all bits but the sign's


def ordinals(x: np.ndarray) -> np.ndarray:
    """Return the ordinals of float32 or float64 numbers (not NaN): int64, same shape."""
    name = x.dtype.name
    bits = np.ascontiguousarray(x).view(_INTEGER[name])
    result: np.ndarray = np.where(bits < 0, bits ^ _MOST[name], bits).astype(np.int64)
    return result


def floats(ordinal: np.ndarray, dtype: str) -> np.ndarray:
    """Return the numbers of ordinals: `dtype`, same shape."""
    bits = ordinal.astype(_INTEGER[dtype])
    result: np.ndarray = np.where(bits < 0, bits ^ _MOST[dtype], bits).view(dtype)
    return result


def ordinal(x: float, dtype: str) -> int:
    """Return the ordinal of a number."""
    return int(ordinals(np.array([x], dtype))[0])


def last_true(
    holds: Callable[[np.ndarray], np.ndarray], low: int, high: int, count: int, dtype: str
) -> np.ndarray:
    """Return the last ordinals for which conditions hold; each holds up to a float and not above.

    `holds`: from `dtype`, shape (count,), a float for each condition, to bool, shape (count,).
    `low`, `high`: first and last ordinal of the search.
    `count`: number of conditions.
    `dtype`: ``"float32"`` or ``"float64"``.
    Returns int64, shape (count,): ``low - 1`` for conditions that never hold.
    """
    below = np.full(count, low - 1, np.int64)
    above = np.full(count, high + 1, np.int64)
    while True:
        # The sum of the two may overflow.
        middle = (below >> 1) + (above >> 1) + (below & above & 1)
        open_ = middle > below
        if not open_.any():
            return below
        yes = holds(floats(np.maximum(middle, low), dtype))
        below = np.where(open_ & yes, middle, below)
        above = np.where(open_ & ~yes, middle, above)
