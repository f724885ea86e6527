"""The error function, composed of operators."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
from numpy.polynomial import chebyshev

from hbtvm.operators.base import Node
from hbtvm.operators.pointwise import apply

_MIDDLE, _DEGREE = 3.0, 20
"""Where the polynomial's variable is 0, and the degree: its error is 2e-15."""

_ASYMPTOTIC = 5.0
"""From here on a continued fraction converges fast, and the factors of `_scaled` under- and overflow."""


def erf(x: Node) -> Node:
    """Return the error function of a node, absolute error below 1e-14.

    For positive x, ``1 - erf(x)`` is ``exp(-x**2)`` times a function that is smooth in ``(x - 3) / (x + 3)``;
    a polynomial approximates it. The error function is odd.
    """
    size = apply("absolute", x)
    t = apply("divide", apply("subtract", size, _MIDDLE), apply("add", size, _MIDDLE))
    *rest, last = _coefficients()
    value: Node = apply("add", apply("multiply", t, last), rest.pop())
    for coefficient in reversed(rest):
        value = apply("add", apply("multiply", value, t), coefficient)
    tail = apply("multiply", value, apply("exp", apply("negative", apply("square", x))))
    return apply("multiply", apply("sign", x), apply("subtract", 1.0, tail))


@cache
def _coefficients() -> tuple[float, ...]:
    """Return the polynomial's coefficients, the constant first, interpolated at Chebyshev's points."""
    count = _DEGREE + 1
    t = np.cos(np.pi * (np.arange(count) + 0.5) / count)
    values = [_scaled(x) for x in (_MIDDLE * (1 + t) / (1 - t)).tolist()]
    return tuple(chebyshev.cheb2poly(chebyshev.chebfit(t, values, _DEGREE)).tolist())


def _scaled(x: float) -> float:
    """Return ``exp(x**2) * (1 - erf(x))`` for x of at least 0."""
    if x < _ASYMPTOTIC:
        return math.exp(x * x) * math.erfc(x)
    fraction = 0.0
    for k in range(60, 0, -1):
        fraction = k / 2 / (x + fraction)
    return 1 / math.sqrt(math.pi) / (x + fraction)
