"""Characters that tell which small letter stands for a Greek capital sigma, as `str.lower` sees them."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable

import numpy as np

_SIGMA, _FINAL = "\u03a3", "\u03c2"


@functools.cache
def cased() -> np.ndarray:
    """Ranges of characters that have a case and are not passed over: uint32, shape (ranges, 2)."""
    return _ranges(_has_case)


@functools.cache
def ignored() -> np.ndarray:
    """Ranges of characters that are passed over where a case is looked for: uint32, shape (ranges, 2)."""
    return _ranges(lambda one: f"A{one}{_SIGMA}".lower().endswith(_FINAL) and not _has_case(one))


def _has_case(one: str) -> bool:
    return f"{one}{_SIGMA}".lower().endswith(_FINAL)


def _ranges(test: Callable[[str], bool]) -> np.ndarray:
    found = np.array([test(chr(point)) for point in range(sys.maxunicode + 1)])
    edges = np.flatnonzero(np.diff(np.concatenate([[False], found, [False]])))
    return (edges.reshape(-1, 2) - [0, 1]).astype(np.uint32)
