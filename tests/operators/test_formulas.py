"""Compositions of operators against numpy and scikit-learn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.special import softmax as expected_softmax
from sklearn.metrics.pairwise import pairwise_kernels

from hbtvm.operators.base import Input, Node, evaluate
from hbtvm.operators.formulas import kernel, log_sum_exp, softmax, whole_power

RNG = np.random.default_rng(0)
X = RNG.normal(size=(30, 4))
POINTS = RNG.normal(size=(9, 4))


def values(node: Node, x: np.ndarray) -> np.ndarray:
    return evaluate([node], lambda leaf: x)[0]


def test_nothing_overflows() -> None:
    x = np.concatenate([X, [[1e5, 1e5, -1e5, 3.0], [-800.0, -801.0, -np.inf, -802.0]]])
    np.testing.assert_allclose(values(softmax(Input(4)), x), expected_softmax(x, axis=1), rtol=1e-13)
    np.testing.assert_allclose(values(log_sum_exp(Input(4)), x)[:, 0], logsumexp(x, axis=1), rtol=1e-13)


@pytest.mark.parametrize("power", [1, 2, 3, 7, 12, 64, 0, 2.5, -1, 100])
def test_powers(power: float) -> None:
    x = np.abs(X) if power != int(power) else X
    np.testing.assert_allclose(values(whole_power(Input(4), power), x), x**power, rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("linear", {}),
        ("cosine", {}),
        ("rbf", {"gamma": 0.3}),
        ("laplacian", {"gamma": 0.3}),
        ("poly", {"gamma": 0.3, "coef0": 1.5, "degree": 4}),
        ("poly", {"gamma": 0.3, "coef0": 0.0, "degree": 3}),
        ("sigmoid", {"gamma": 0.3, "coef0": -0.5}),
    ],
)
def test_kernels(name: Any, options: dict[str, Any]) -> None:
    x = np.concatenate([X, np.zeros((1, 4))])
    node = kernel(Input(4), POINTS, name, **{"gamma": 1.0, **options})
    np.testing.assert_allclose(
        values(node, x), pairwise_kernels(x, POINTS, name, **options), rtol=1e-11, atol=1e-13
    )
