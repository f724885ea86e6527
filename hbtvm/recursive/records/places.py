"""The structure and node of each row that a recursive model returns."""

from __future__ import annotations

import numpy as np

from hbtvm.errors import InputError
from hbtvm.runtime.recursive.structures import Structures


def places_of(structures: Structures, over: str) -> np.ndarray:
    """Return each result's structure and, for results of nodes, node; shape (results, 1 or 2)."""
    if over not in ("roots", "nodes"):
        return np.arange(len(structures))[:, None]
    nodes = _roots(structures) if over == "roots" else np.arange(len(structures.first) - 1)
    structure = np.searchsorted(structures.starts, nodes, "right") - 1
    return np.column_stack([structure, nodes - structures.starts[structure]])


def _roots(structures: Structures) -> np.ndarray:
    """Return the nodes without a parent."""
    is_root = np.ones(len(structures.first) - 1, bool)
    is_root[structures.child[structures.child >= 0]] = False
    return np.flatnonzero(is_root)


def require_one_root(structures: Structures, advice: str) -> None:
    """Raise an `InputError`, which ends with advice, unless each structure has one root."""
    counts = np.bincount(places_of(structures, "roots")[:, 0], minlength=len(structures))
    if (counts != 1).any():
        at = int(np.argmax(counts != 1))
        raise InputError(f"structure {at}: it has {counts[at]} roots, and a row for each; {advice}.")
