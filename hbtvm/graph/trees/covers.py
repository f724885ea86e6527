"""Covers of nodes out of files: sums for splits that have none, and checks."""

from __future__ import annotations

from typing import Any

import numpy as np

from hbtvm.graph.trees.ensemble import LEAF

_MOST_OF_PARENT = 1.5
"""Largest part of a parent's cover that a child has, as libraries round sums and estimate counts."""


def cover_of(stored: Any, nodes: int, dtype: type = np.float64) -> np.ndarray | None:
    """Return stored covers as float64, shape (nodes,); None if they are no list of so many numbers.

    `dtype`: the library's type, to which a text may have more digits.
    """
    try:
        with np.errstate(over="ignore"):
            cover = np.asarray(stored, np.float64).astype(dtype).astype(np.float64)
    except (TypeError, ValueError, OverflowError):
        return None
    return cover if cover.shape == (nodes,) else None


def checked(cover: np.ndarray, left: np.ndarray, right: np.ndarray, offset: np.ndarray) -> np.ndarray | None:
    """Return the covers of a forest of valid trees; None if they cannot be.

    `cover`: float64, shape (N,): NaN at splits whose cover is the sum of their children's.
    `left`, `right`, `offset`: as in `hbtvm.graph.trees.ensemble.TreeEnsemble`.
    """
    split = np.flatnonzero(left != LEAF)
    base = np.repeat(offset[:-1], np.diff(offset))[split]
    children = np.stack([base + left[split], base + right[split]])
    if np.isnan(cover[split]).any():
        cover = _summed(cover, split, children, offset)
    # NaN fails the comparison, too.
    if not 0 <= cover.min() <= cover.max() < np.inf:
        return None
    largest = np.maximum(cover[children[0]], cover[children[1]])
    return cover if np.all(largest <= _MOST_OF_PARENT * cover[split]) else None


def _summed(cover: np.ndarray, split: np.ndarray, children: np.ndarray, offset: np.ndarray) -> np.ndarray:
    """Return covers with those of splits computed from their children's, where they are NaN."""
    cover, place = cover.copy(), np.full(len(cover), -1, np.int64)
    place[split] = np.arange(len(split))
    levels = []
    frontier = place[offset[:-1]]
    while len(frontier := frontier[frontier >= 0]):
        levels.append(frontier)
        frontier = place[children[:, frontier].ravel()]
    for level in reversed(levels):
        sums = cover[children[:, level]].sum(axis=0)
        cover[split[level]] = np.where(np.isnan(cover[split[level]]), sums, cover[split[level]])
    return cover
