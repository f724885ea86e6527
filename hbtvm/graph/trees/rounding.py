"""Thresholds in float32: rounded so that every float32 value stays on its side."""

from __future__ import annotations

import numpy as np


def float32_at_most(threshold: np.ndarray) -> np.ndarray:
    """Return the largest float32 values that are not above float64 thresholds, as float32.

    For a float32 ``x``, comparing ``x <= threshold`` and ``x <=`` the result is the same.
    """
    with np.errstate(over="ignore"):
        near = threshold.astype(np.float32)
        lower = np.nextafter(near, np.float32(-np.inf))
    result: np.ndarray = np.where(near > threshold, lower, near)
    return result


def float32_below(threshold: np.ndarray) -> np.ndarray:
    """Return, for float32 thresholds of ``x < threshold``, those of the same ``x <= result``, as float32."""
    with np.errstate(over="ignore"):
        result: np.ndarray = np.nextafter(threshold.astype(np.float32), np.float32(-np.inf))
    return result
