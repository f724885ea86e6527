"""From raw scores to responses: links and probabilities, as each library computes them."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from hbtvm.graph.outputs.arrays import Arrays
from hbtvm.operators import pointwise

Transform = Literal[
    "identity",
    "sigmoid",
    "softmax",
    "exp",
    "softplus",
    "signed_square",
    "hinge",
    "class_index",
    "isolation",
    "one_vs_rest",
    "modified_huber",
    "columns",
]

MOST_POWER = float(np.float32(88.7))
"""XGBoost's sigmoid, the only one in float32, takes e to no larger power, so that it never gets to 0."""


def respond(transform: Transform, values: Any, scale: float, dtype: str, arrays: Arrays) -> Any:
    """Return the response to raw scores.

    Parameters
    ----------
    transform, scale, dtype
        As in `hbtvm.graph.outputs.output.OutputSpec`.
    values
        Raw scores of `dtype`, shape (n, O), or (n,) with one score.
    """
    if transform == "identity":
        return values
    # exp overflows to infinity for large powers, with the right result: 1 / (1 + inf) is 0, for example.
    with np.errstate(over="ignore"):
        match transform:
            case "sigmoid":
                return _logistic(values, scale, dtype, arrays)
            case "softmax":
                return softmax(values, arrays)
            case "exp":
                return arrays.exp(values)
            case "softplus":
                return arrays.log1p(arrays.exp(values))
            case "signed_square":
                return arrays.sign(values) * values * values
            case "hinge":
                return arrays.cast(values > 0, dtype)
            case "class_index":
                return arrays.cast(arrays.argmax(values), dtype)
            case "isolation":
                return -_isolation(values, scale)
            case "one_vs_rest":
                return _shares(_logistic(values, scale, dtype, arrays), arrays)
            case "modified_huber":
                return _modified_huber(values, arrays)
    return values


def _logistic(values: Any, scale: float, dtype: str, arrays: Arrays) -> Any:
    """Return ``1 / (1 + exp(-scale * value))``."""
    power = values * -float(scale)
    if dtype == "float32":
        power = arrays.at_most(power, MOST_POWER)
    return pointwise.sigmoid(-power, arrays.exp)


def softmax(values: Any, arrays: Arrays) -> Any:
    """Return the softmax of each row."""
    powers = arrays.exp(values - arrays.largest(values))
    powers /= arrays.total(powers)
    return powers


def _isolation(depth: Any, scale: float) -> Any:
    # A forest trained on one sample has no depth to divide by; the library then scores one half.
    if scale == 0:
        return depth * 0.0 + 0.5
    # The library's power and not exp2, as the last bit decides about rows on the threshold.
    return 2.0 ** -(depth / scale)


def _modified_huber(values: Any, arrays: Arrays) -> Any:
    """Return scikit-learn's probabilities for that loss: scores cut to -1 and 1, moved to 0 and 1."""
    share = (-arrays.at_most(-arrays.at_most(values, 1.0), 1.0) + 1.0) / 2.0
    return share if len(values.shape) == 1 else _shares(share, arrays)


def _shares(values: Any, arrays: Arrays) -> Any:
    """Return each row divided by its sum; rows of zeros become equal shares."""
    total = arrays.total(values)
    none = arrays.cast(total == 0, "float64")
    return (values + none) / (total + none * values.shape[1])
