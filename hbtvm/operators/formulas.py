"""Formulas of several models, composed of operators: softmax, kernels of support vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from hbtvm.operators.base import Node
from hbtvm.operators.distances import Distance
from hbtvm.operators.pointwise import apply
from hbtvm.operators.products import Contract
from hbtvm.operators.shapes import concat, reduce

Kernel = Literal["linear", "poly", "rbf", "sigmoid", "laplacian", "cosine"]

MOST_POWER = float(np.float32(88.7))  # XGBoost's sigmoid takes e to no larger power, so that it is never 0
_MOST_FACTORS = 64  # the largest whole power computed by multiplication


def softmax(x: Node) -> Node:
    """Return the softmax of the columns; nothing overflows."""
    power = apply("exp", apply("subtract", x, reduce("max", x)))
    return apply("divide", power, reduce("sum", power))


def shares(values: Node) -> Node:
    """Return each row divided by its sum; rows of zeros become equal shares."""
    total = reduce("sum", values)
    return apply("where", total, apply("divide", values, total), 1.0 / values.width)


def sigmoid(x: Node, scale: float = 1.0) -> Node:
    """Return ``1 / (1 + exp(-scale * x))``."""
    return apply("sigmoid", x if scale == 1.0 else apply("multiply", x, scale))


def float32_sigmoid(x: Node) -> Node:
    """Return XGBoost's sigmoid, which is never 0."""
    return apply("sigmoid", apply("maximum", x, -MOST_POWER))


def signed_square(x: Node) -> Node:
    """Return ``sign(x) * x ** 2``."""
    return apply("multiply", apply("multiply", apply("sign", x), x), x)


def modified_huber(x: Node) -> Node:
    """Return scikit-learn's probabilities for this loss: scores clipped to -1 and 1, moved to 0 and 1."""
    cut = apply("maximum", apply("minimum", x, 1.0), -1.0)
    share = apply("divide", apply("add", cut, 1.0), 2.0)
    return share if x.width == 1 else shares(share)


def likelier(second: Node) -> Node:
    """Return 1 if the second of two classes is likelier, from its probability; else 0."""
    return apply("greater", second, apply("subtract", 1.0, second))


def total(parts: Sequence[Node]) -> Node:
    """Return the sum of nodes of the same width, added from the first to the last."""
    result = parts[0]
    for part in parts[1:]:
        result = apply("add", result, part)
    return result


def log_sum_exp(x: Node) -> Node:
    """Return the logarithm of the sum of the columns' exponentials, width 1; nothing overflows."""
    largest = reduce("max", x)
    return apply("add", apply("log", reduce("sum", apply("exp", apply("subtract", x, largest)))), largest)


def with_complement(second: Node) -> Node:
    """Return probabilities of two classes from that of the second, width 1."""
    return concat([apply("subtract", 1.0, second), second])


def normalised(x: Node, least: float) -> Node:
    """Return rows divided by their Euclidean norm; rows whose norm is below `least` stay."""
    norm = apply("sqrt", reduce("sum", apply("square", x)))
    return apply("divide", x, apply("where", apply("less", norm, least), 1.0, norm))


def unit_rows(points: np.ndarray, least: float) -> np.ndarray:
    """Do as `normalised` for an array, float64, shape (T, F)."""
    norms = np.sqrt((points * points).sum(axis=1, keepdims=True))
    return points / np.where(norms < least, 1.0, norms)


def least_norm(dtype: np.dtype) -> float:
    """Return the norm below which scikit-learn leaves rows as they are: ten roundings of 1.

    `dtype`: type of the training rows; scikit-learn computes in float32 only if both these and the rows are.
    """
    return 10.0 * float(np.finfo(dtype if dtype.kind == "f" else np.float64).eps)


def cosines(x: Node, points: np.ndarray, least: float) -> Node:
    """Return cosines of angles between rows and stored points, float64, shape (T, F); see `normalised`."""
    return Contract(normalised(x, least), np.ascontiguousarray(unit_rows(points, least).T)).checked()


def whole_power(x: Node, power: float) -> Node:
    """Return x to a power; small whole powers are computed by multiplication, as in libsvm."""
    if power != int(power) or not 1 <= power <= _MOST_FACTORS:
        return apply("power", x, float(power))
    result: Node | None = None
    factor, rest = x, int(power)
    while True:
        if rest % 2:
            result = factor if result is None else apply("multiply", result, factor)
        rest //= 2
        if not rest:
            assert result is not None
            return result
        factor = apply("multiply", factor, factor)


def kernel(
    x: Node,
    points: np.ndarray,
    name: Kernel,
    gamma: float,
    coef0: float = 0.0,
    degree: float = 3.0,
    least: float = least_norm(np.dtype(np.float64)),
) -> Node:
    """Return a kernel of rows with stored points, width T.

    `points`: float64, shape (T, F).
    `gamma`, `coef0`, `degree`: ``(gamma * x @ p + coef0) ** degree`` (poly), ``tanh(gamma * x @ p + coef0)``
        (sigmoid), ``exp(-gamma * squared distance)`` (rbf), ``exp(-gamma * Manhattan distance)`` (laplacian).
    `least`: see `normalised` (cosine).
    """
    match name:
        case "rbf" | "laplacian":
            distance = Distance(x, points, "squared_euclidean" if name == "rbf" else "manhattan").checked()
            return apply("exp", apply("multiply", distance, -gamma))
        case "cosine":
            return cosines(x, points, least)
        case "linear":
            return Contract(x, np.ascontiguousarray(points.T)).checked()
    product = Contract(x, np.ascontiguousarray(gamma * points.T)).checked()
    shifted = apply("add", product, coef0) if coef0 else product
    return apply("tanh", shifted) if name == "sigmoid" else whole_power(shifted, degree)
