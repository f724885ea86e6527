"""What follows a kernel of distances: the nearest points, and the mean of their values.

Packages of format version 6 may hold such kernels; none are made any more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

_BLOCK = 1 << 20
"""Distances that are held at a time: they stay in the last cache."""


class Vote:
    """Makes scores of squared Euclidean distances to T points, with O values each.

    Parameters
    ----------
    facts
        ``points`` is T, ``values`` the points' values (T lists of O numbers), ``k`` how many neighbours
        count, ``weights`` whether all of them alike (``"uniform"``), or by the reciprocal of their distance.
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
            self._vote(distances(rows[start : start + self._rows]))
            for start in range(0, len(rows), self._rows)
        ]
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _vote(self, squares: np.ndarray) -> np.ndarray:
        # Of points at the same distance those that come first count, as in scikit-learn.
        nearest = np.argsort(squares, axis=1, kind="stable")[:, : self._k]
        if self._weights == "uniform":
            result: np.ndarray = self._values[nearest].mean(axis=1)
            return result
        with np.errstate(divide="ignore"):
            weight = 1.0 / np.sqrt(np.take_along_axis(squares, nearest, axis=1))
        # A point that the row equals outweighs all that it does not equal.
        at = np.isinf(weight)
        weight = np.where(at.any(axis=1)[:, None], at.astype(np.float64), weight)
        scores: np.ndarray = np.einsum("rk,rko->ro", weight, self._values[nearest])
        scores /= weight.sum(axis=1)[:, None]
        return scores
