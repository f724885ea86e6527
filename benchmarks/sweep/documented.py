"""Differences that docs/reference/models.md states: they count as ``more``, with the sentence."""

from __future__ import annotations

import re
from typing import Any

from benchmarks.sweep.edges import has_trees, parts

_OVERFLOW = re.compile(r"^\[|the library raises ValueError: Input.*too large for dtype")


def sentence(model: Any, rows: str, reason: str) -> str:
    """Return the sentence that states a difference; empty if there is none."""
    if _OVERFLOW.search(reason) and rows.startswith("extreme") and (reason[0] != "[" or not has_trees(model)):
        return "Values that overflow within a model are infinite there."
    if reason == "sparse array for sparse matrix" and _has(model, "PolynomialFeatures"):
        return "Sparse arrays give sparse arrays."
    if reason.startswith("array for") and "DataFrame" in reason and _has(model, "FunctionTransformer"):
        return "A FunctionTransformer gives an array for frames, too."
    return ""


def _has(model: Any, name: str) -> bool:
    """Whether an estimator of a class is part of a model."""
    return any(type(part).__name__ == name for part in parts(model))
