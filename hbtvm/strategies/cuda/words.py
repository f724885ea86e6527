"""Nodes as words of 64 bits, so that a thread fetches one by a single load.

A node is what a row's column is compared with, and which column that is. In float32 both share a
word, the threshold in the lower half; in float64 the threshold takes a word, and so does the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import tirx


def width(dtype: str) -> int:
    """Words of a node."""
    return 2 if dtype == "float64" else 1


def pack(threshold: np.ndarray, link: np.ndarray) -> np.ndarray:
    """Nodes of thresholds and links (columns, or more), both of shape (...).

    Returns
    -------
    int64, shape (..., `width`).
    """
    if threshold.dtype == np.float64:
        return np.stack([threshold.view(np.int64), link.astype(np.int64)], -1)
    low = threshold.view(np.uint32).astype(np.int64)
    packed: np.ndarray = (link.astype(np.int64) << 32 | low)[..., None]
    return packed


def unpack(word: Callable[[int], Any], dtype: str) -> tuple[Any, Any]:
    """Threshold and link (int64 in float64, else int32) of the node whose n-th word is ``word(n)``."""
    if dtype == "float64":
        return tirx.reinterpret("float64", word(0)), word(1)
    # A load of either half would be one for each.
    both = word(0)
    return tirx.reinterpret("float32", both.astype("int32")), (both >> 32).astype("int32")
