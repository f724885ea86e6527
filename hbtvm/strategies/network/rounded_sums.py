"""Sums of products in float32: their tables, and bounds of their errors.

With ``u = 2**-24``, N sums of up to C terms each that are then added, and rounded weights ``v``, the error
of an output's sum is at most::

    bound[o] = sum over k of |x[k]| * ((C[k] + N) u |v[k, o]| + |w[k, o] - v[k, o]|)

where C[k] <= C counts the roundings from term k to the end of its sum.

A kernel computes this bound for each tile of rows, with the largest |x[k]| of the tile. It keeps the tile's
sums if each output's bound is at most `SHARE` of the output's largest score in the tile, which is far from
underflow and overflow. Else (sums cancel, or a number is huge, tiny or infinite) it computes the tile in
float64. The check is in `hbtvm.compiler.lowering.product.bound`; the bound is that of N. J. Higham, "Accuracy
and Stability of Numerical Algorithms", 2002, section 3.1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

SHARE = 9e-6  # largest error of float32 sums, relative to an output's largest score in a tile

_UNIT = 2.0**-24
_VANISHES = 2e-19  # numbers whose squares may be 0 in float32
_USUAL = 6e-6  # largest bound that `pays` accepts for usual rows, relative to scores; rows differ
_LARGEST_OVER_SCORES = 1.5
"""The largest number of a column in a tile, over its deviation, relative to the same of a score, as kernels
estimate both."""


def linear_function(
    nodes: Sequence[Mapping[str, Any]], tables: Sequence[Mapping[str, np.ndarray]]
) -> tuple[np.ndarray, np.ndarray]:
    """Return weight, shape (features, outputs), and bias of a network that `is_product` accepts."""
    weight = np.asarray(tables[1]["weight"], np.float64)
    bias = np.zeros(weight.shape[1])
    if len(nodes) > 2:
        bias += tables[2]["values"]
        if nodes[3]["function"] == "subtract":
            bias = -bias
    return weight, bias


def rounded(weight: np.ndarray, bias: np.ndarray, terms: int) -> dict[str, np.ndarray]:
    """Return the tables of sums in float32: rounded values, and factors of their errors' bound."""
    narrow, narrow_bias = weight.astype(np.float32), bias.astype(np.float32)
    share = _UNIT * _roundings(len(weight), terms)[:, None]
    # (The factor covers the roundings of the bound itself.)
    bound = 1.01 * (share * np.abs(narrow) + np.abs(weight - narrow))
    slack = 1.01 * np.abs(bias - narrow_bias) + _VANISHES * bound.sum(axis=0)
    return {"narrow": narrow, "bound": bound, "narrow_bias": narrow_bias, "slack": slack}


def _roundings(count: int, terms: int) -> np.ndarray:
    """Return how many roundings each term of a sum passes through if products and sums are not fused."""
    places = np.arange(count)
    length = np.minimum(terms, count - places // terms * terms)
    return np.minimum(length, length - places % terms + 1) + -(-count // terms)


def pays(weight: np.ndarray, bias: np.ndarray, terms: int) -> bool:
    """Return whether most tiles' sums in float32 should be exact enough.

    Usual rows are taken to have independent columns of equal deviations, and small means. For other rows,
    kernels are right, but may compute everything twice.
    """
    with np.errstate(over="ignore"):
        tables = rounded(weight, bias, terms)
        lengths = np.linalg.norm(weight, axis=0)
        bounds = _LARGEST_OVER_SCORES * tables["bound"].sum(axis=0)
        small = np.abs(bias) <= lengths
        finite = np.isfinite(tables["narrow"]).all() and np.isfinite(tables["narrow_bias"]).all()
    return bool(finite and (lengths > 0).all() and small.all() and (bounds <= _USUAL * lengths).all())
