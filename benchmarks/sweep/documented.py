"""Differences that docs/reference/models.md states: they count as ``more``, with the sentence."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from benchmarks.sweep import compare
from benchmarks.sweep.edges import has_trees, parts

_OVERFLOW = re.compile(r"^\[|the library raises ValueError: Input.*too large for dtype")

_WHOLE = re.compile("int|bool|Int64|integers|category")
"""Names of rows that are whole numbers."""


def sentence(model: Any, title: str, rows: Any, reason: str) -> str:
    """Return the sentence that states a difference; empty if there is none.

    Parameters
    ----------
    title, rows
        The rows' name, and the rows.
    reason
        How the answer differs.
    """
    if (
        _OVERFLOW.search(reason)
        and title.startswith("extreme")
        and (reason[0] != "[" or not has_trees(model))
    ):
        return "Values that overflow within a model are infinite there."
    of_functions = _has(model, "AdditiveChi2Sampler", "FunctionTransformer")
    if of_functions and _WHOLE.search(title) and reason.startswith(("[", "type float")):
        return "Functions of integers are those of the same numbers in float64."
    if _WHOLE.search(title) and reason.startswith("["):
        if _has(model, "GaussianMixture", "BayesianGaussianMixture"):
            return "Mixtures compute for integers as for the same numbers in float64."
        if _ties(model, rows):
            return "Of tied neighbours, those that come first are taken."
    if "Negative values" in reason and title.startswith(("huge", "extreme", "larger")):
        return "Values that overflow within a model are infinite there."
    if reason == "sparse array for sparse matrix" and _has(
        model, "PolynomialFeatures", "AdditiveChi2Sampler"
    ):
        return "Sparse arrays give sparse arrays."
    if title.startswith(("csr", "csc", "coo")) and reason.startswith("[") and _has(model, "RobustScaler"):
        return "RobustScaler centres sparse rows."
    if reason.startswith("array for") and "DataFrame" in reason and _has(model, "FunctionTransformer"):
        return "A FunctionTransformer gives an array for frames, too."
    return ""


def _has(model: Any, *names: str) -> bool:
    """Whether an estimator of some classes is part of a model."""
    return any(type(part).__name__ in names for part in parts(model))


def _ties(model: Any, rows: Any) -> bool:
    """Whether the last neighbour of some row is as far as the next one, by the model's own search."""
    if not hasattr(model, "kneighbors") or not hasattr(model, "n_neighbors"):
        return False
    found, error = compare.call(lambda X: model.kneighbors(X, model.n_neighbors + 1)[0], rows)
    return error is None and bool(np.isclose(found[:, -2], found[:, -1], rtol=1e-12, atol=0.0).any())
