"""XGBoost's ``gblinear``: weighted sums of the columns that are not missing."""

from __future__ import annotations

from typing import Any

import numpy as np

from hbtvm.graph.networks.network import Linear
from hbtvm.operators.base import Input
from hbtvm.operators.products import LinearSum


def read_linear(weights: Any, n_features: int, base_score: np.ndarray) -> Linear:
    """Return the sums of a linear booster.

    Parameters
    ----------
    weights
        The document's list: a row of O numbers for each column, then the biases.
    base_score
        float64, shape (O,).

    Raises
    ------
    ValueError
        If there is another number of weights, or one is not a finite number.
    """
    outputs = len(base_score)
    if len(weights) != (n_features + 1) * outputs:
        raise ValueError(f"there are {len(weights)} weights for {n_features} features and {outputs} scores")
    matrix = np.array(weights, np.float64).reshape(n_features + 1, outputs).astype(np.float32)
    if not np.isfinite(matrix).all():
        raise ValueError("a weight is not a finite number")
    weight, bias = matrix[:-1].astype(np.float64), matrix[-1].astype(np.float64)
    # A missing value adds nothing.
    zeros = np.zeros(n_features), weight, np.zeros_like(weight)
    codes = np.zeros(0, np.int32), (), np.zeros((0, outputs))
    sums = LinearSum(Input(n_features), np.arange(n_features, dtype=np.int32), *zeros, *codes)
    # XGBoost adds the first base score to all sums, also where it has others.
    return Linear(sums, base_score[0] + bias)
