"""What follows a kernel of distances: the nearest points, and the mean of their values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from hbtvm.graph.neighbors import vote

_BLOCK = 1 << 20
"""Distances that are held at a time: they stay in the last cache."""


class Vote:
    """Makes scores of distances.

    Parameters
    ----------
    facts
        What `hbtvm.graph.neighbors.Neighbors.facts` tells.
    """

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self._values = np.array(facts["values"], np.float64)
        self._k, self._weights = int(facts["k"]), str(facts["weights"])
        self._rows = max(1, _BLOCK // int(facts["points"]))

    def run(self, rows: np.ndarray, distances: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """Return the scores of rows, float64, shape (n, O).

        Parameters
        ----------
        distances
            From rows to squared distances, shape (n, points).
        """
        parts = [
            vote(distances(rows[start : start + self._rows]), self._values, self._k, self._weights)
            for start in range(0, len(rows), self._rows)
        ]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)
