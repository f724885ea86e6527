"""Numbers of devices without float64: pairs of float32 numbers, a high and a low part.

See `hbtvm.compiler.lowering.cuda.pairs`. A pair takes the place of a float64 number in memory, the high part
first.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

PAIRS = "HBTVM_PAIRS"
"""The macro by which source computes in pairs."""

ADD, DIVIDE, EQUAL, WIDE = "hbtvm_add", "hbtvm_divide", "hbtvm_equal", "hbtvm_wide"
"""Operations of source that can: a sum, a quotient, a comparison, and a float32 number as a pair."""

BITS = 2
"""The gather kernel's argument ``single`` for float64 rows of which it makes pairs (see
`hbtvm.compiler.lowering.gather`)."""


def can_use_pairs(source: bytes) -> bool:
    """Return whether a kernel's source computes in pairs where asked to."""
    return PAIRS.encode() in source


def to_pairs(numbers: np.ndarray) -> np.ndarray:
    """Return float64 numbers as pairs, float32, shape (..., 2); arrays of other types as they are."""
    if numbers.dtype != np.float64:
        return numbers
    with np.errstate(invalid="ignore"):  # infinities have no rest
        high = numbers.astype(np.float32)
        low = np.where(np.isfinite(high), numbers - high, 0)
    return np.stack([high, low.astype(np.float32)], axis=-1)


def from_pairs(pairs: np.ndarray) -> None:
    """Replace pairs by their float64 numbers in place.

    `pairs`: float64, C-contiguous, whose bytes are pairs.
    """
    parts = pairs.view(np.float32).reshape(*pairs.shape, 2)
    np.add(parts[..., 0], parts[..., 1], dtype=np.float64, out=pairs)


def argument(value: Any) -> Any:
    """Return a kernel's argument; a pair in place of a double."""
    if not isinstance(value, ctypes.c_double):
        return value
    return ctypes.c_uint64(int(to_pairs(np.array(value.value)).view(np.uint64)[0]))
