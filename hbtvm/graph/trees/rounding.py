"""Round thresholds to float32 so that every float32 value stays on its side."""

from __future__ import annotations

import numpy as np


def float32_at_most(threshold: np.ndarray) -> np.ndarray:
    """Return the largest float32 values at most float64 thresholds, as float32.

    For a float32 ``x``, ``x <= threshold`` and ``x <= result`` are the same.
    """
    with np.errstate(over="ignore"):
        near = threshold.astype(np.float32)
        lower = np.nextafter(near, np.float32(-np.inf))
    result: np.ndarray = np.where(near > threshold, lower, near)
    return result


def float32_below(threshold: np.ndarray) -> np.ndarray:
    """Return the float32 values for which ``x <= result`` is the same as ``x < threshold`` in float32."""
    with np.errstate(over="ignore"):
        result: np.ndarray = np.nextafter(threshold.astype(np.float32), np.float32(-np.inf))
    return result
