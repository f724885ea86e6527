"""Acquisition functions: the merit of measuring a candidate (AutoTVM, section 3.3)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from hbtvm.cost_model.base import Prediction

_KAPPA = 1.0  # standard deviations that the upper confidence bound adds to the mean
_FAR = 5.0  # standard deviations below the best beyond which the expected improvement follows its asymptote
_SURE = 1e-6  # minimal standard deviation, in log2 of speed


def merit(kind: str, prediction: Prediction, best: float) -> NDArray[np.float64]:
    """Return the merit of candidates, (n,); higher is better.

    `kind`: ``"mean"``, ``"ucb"`` (upper confidence bound: mean plus one standard deviation) or ``"ei"``
        (expected improvement on `best`; Jones et al., 1998, equation 15, as a logarithm, since most values
        underflow).
    `prediction`: speeds are assumed to be normally distributed. Without standard deviations, all kinds order
        by the mean.
    `best`: the model's prediction for the best candidate measured so far.
    Raises `ValueError` if there is no such acquisition.
    """
    if kind not in ("mean", "ucb", "ei"):
        raise ValueError(f"there is no acquisition {kind!r}")
    if kind == "mean" or not prediction.unsure:
        return prediction.mean
    if kind == "ucb":
        return np.asarray(prediction.mean + _KAPPA * prediction.std)
    width = np.maximum(prediction.std, _SURE)
    above = (prediction.mean - best) / width
    # Far below the best, density and distribution cancel; what is left is density / above ** 2.
    near = np.maximum(above, -_FAR)
    gain = near * ndtr(near) + np.exp(-0.5 * near**2) / np.sqrt(2 * np.pi)
    beyond = 0.5 * (near**2 - above**2) - 2 * np.log(np.maximum(-above, _FAR) / _FAR)
    return np.asarray(np.log(width) + np.log(gain) + beyond)
