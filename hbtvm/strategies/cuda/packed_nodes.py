"""Packed nodes: 64-bit words that a thread fetches by a single load.

A node is a threshold and a link (the column to compare, or more). In float32 both share a
word, the threshold in its low half; in float64 each takes a word.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import tirx


def width(dtype: str) -> int:
    """Return the words of a node."""
    return 2 if dtype == "float64" else 1


def pack(threshold: np.ndarray, link: np.ndarray) -> np.ndarray:
    """Return packed nodes of thresholds and links, both of shape (...).

    Returns int64, shape (..., `width`).
    """
    if threshold.dtype == np.float64:
        return np.stack([threshold.view(np.int64), link.astype(np.int64)], -1)
    low = threshold.view(np.uint32).astype(np.int64)
    packed: np.ndarray = (link.astype(np.int64) << 32 | low)[..., None]
    return packed


def unpack(word: Callable[[int], Any], dtype: str) -> tuple[Any, Any]:
    """Return threshold and link (int64 in float64, else int32) of the node whose n-th word is ``word(n)``."""
    if dtype == "float64":
        return tirx.reinterpret("float64", word(0)), word(1)
    # Loading the halves separately would take two instructions.
    both = word(0)
    return tirx.reinterpret("float32", both.astype("int32")), (both >> 32).astype("int32")
