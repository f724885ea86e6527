"""Differences that docs/reference/models.md states: they count as ``more``, with the sentence."""

from __future__ import annotations

import re
from typing import Any

from benchmarks.sweep.edges import parts

_OVERFLOW = re.compile(r"the library raises ValueError: Input.*too large for dtype\('float32'\)")


def sentence(model: Any, rows: str, reason: str) -> str:
    """Return the sentence that states a difference; empty if there is none."""
    if _OVERFLOW.search(reason) and rows == "extreme":
        return "Values beyond float32's range are infinite to models that read float32 within another model."
    if reason.startswith("array for") and "DataFrame" in reason and _has(model, "FunctionTransformer"):
        return "A FunctionTransformer gives an array for frames, too."
    return ""


def _has(model: Any, name: str) -> bool:
    """Whether an estimator of a class is part of a model."""
    return any(type(part).__name__ == name for part in parts(model))
