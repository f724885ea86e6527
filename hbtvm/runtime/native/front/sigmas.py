"""Characters that determine the lower case of a Greek capital sigma, as in `str.lower`."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable

import numpy as np

_SIGMA, _FINAL = "\u03a3", "\u03c2"


@functools.cache
def cased() -> np.ndarray:
    """Return ranges of cased characters that are not ignored: uint32, shape (ranges, 2)."""
    return _ranges(_has_case)


@functools.cache
def ignored() -> np.ndarray:
    """Return ranges of characters that the search for a case ignores: uint32, shape (ranges, 2)."""
    return _ranges(
        lambda character: f"A{character}{_SIGMA}".lower().endswith(_FINAL) and not _has_case(character)
    )


def _has_case(character: str) -> bool:
    return f"{character}{_SIGMA}".lower().endswith(_FINAL)


def _ranges(test: Callable[[str], bool]) -> np.ndarray:
    matches = np.array([test(chr(point)) for point in range(sys.maxunicode + 1)])
    edges = np.flatnonzero(np.diff(np.concatenate([[False], matches, [False]])))
    return (edges.reshape(-1, 2) - [0, 1]).astype(np.uint32)
