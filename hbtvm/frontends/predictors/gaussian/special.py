"""Special functions that numpy lacks."""

from __future__ import annotations

import numpy as np

_LARGE = 10.0  # from here on a few terms of the asymptotic series are exact to float64


def digamma(x: np.ndarray) -> np.ndarray:
    """Return the derivative of the logarithm of the gamma function of positive numbers.

    It uses the recurrence below 10, and the asymptotic series above (Abramowitz and Stegun, 6.3.5, 6.3.18).
    """
    x = np.array(x, np.float64)
    result = np.zeros_like(x)
    for _ in range(int(_LARGE)):
        small = x < _LARGE
        result = np.where(small, result - 1.0 / x, result)
        x = np.where(small, x + 1.0, x)
    inverse = 1.0 / (x * x)
    terms = (1 / 12, -1 / 120, 1 / 252, -1 / 240, 1 / 132, -691 / 32760, 1 / 12)
    series = np.zeros_like(x)
    for term in reversed(terms):
        series = (series + term) * inverse
    total: np.ndarray = result + np.log(x) - 0.5 / x - series
    return total
