"""`Neighbors`: the nearest of stored points, the third kind of anchor: a kernel's distances, and a vote."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np


@dataclass(frozen=True, eq=False)
class Neighbors:
    """Means over the k nearest of T points, with O values each.

    The kernel computes squared Euclidean distances, float64, shape (n, T); `vote` does the rest.

    Attributes
    ----------
    points
        float64, shape (T, F).
    values
        float64, shape (T, O): 1 for a point's class, or its targets.
    k
        Neighbours that count.
    weights
        Whether all of them count alike, or by the reciprocal of their distance.
    """

    points: np.ndarray
    values: np.ndarray
    k: int
    weights: Literal["uniform", "distance"] = "uniform"

    compare_dtype = "float64"
    divisor = 1.0

    @property
    def n_features(self) -> int:
        """Columns of the input."""
        return int(self.points.shape[1])

    @property
    def n_outputs(self) -> int:
        """Scores of a row, O."""
        return int(self.values.shape[1])

    @property
    def base_score(self) -> np.ndarray:
        """Zeros, float64, shape (O,)."""
        return np.zeros(self.n_outputs)

    def reference(self, X: np.ndarray) -> np.ndarray:
        """Return the squared distances of rows, shape (n, F), to all points: float64, shape (n, T)."""
        difference = X.astype(np.float64)[:, None, :] - self.points
        result: np.ndarray = np.einsum("rtf,rtf->rt", difference, difference)
        return result

    def facts(self) -> dict[str, Any]:
        """What the runtime and its user need to know."""
        return {
            "operator": "neighbors",
            "n_features": self.n_features,
            "n_outputs": self.n_outputs,
            "compare_dtype": "float64",
            "base_score": self.base_score.tolist(),
            "divisor": 1.0,
            "points": len(self.points),
            "k": self.k,
            "weights": self.weights,
            "values": self.values.tolist(),
        }


def vote(squares: np.ndarray, values: np.ndarray, k: int, weights: str) -> np.ndarray:
    """Return the scores, float64, shape (n, O), that follow from squared distances, shape (n, T).

    Of points at the same distance as the k-th, those that come first count, as in scikit-learn.

    Parameters
    ----------
    values, k, weights
        As in `Neighbors`.
    """
    nearest = nearest_of(squares, k)
    if weights == "uniform":
        result: np.ndarray = values[nearest].mean(axis=1)
        return result
    with np.errstate(divide="ignore"):
        weight = 1.0 / np.sqrt(np.take_along_axis(squares, nearest, axis=1))
    # A point that the row equals outweighs all that it does not equal.
    at = np.isinf(weight)
    weight = np.where(at.any(axis=1)[:, None], at.astype(np.float64), weight)
    scores: np.ndarray = np.einsum("rk,rko->ro", weight, values[nearest])
    scores /= weight.sum(axis=1)[:, None]
    return scores


def nearest_of(squares: np.ndarray, k: int) -> np.ndarray:
    """Return the positions of each row's k smallest values, the first of equals; int64, shape (n, k)."""
    if k >= squares.shape[1]:
        return np.argsort(squares, axis=1, kind="stable")[:, :k]
    found = np.argpartition(squares, k - 1, axis=1)[:, :k]
    largest = np.take_along_axis(squares, found, axis=1).max(axis=1)
    # Where more points are as far away as the last one, which of them were taken is not defined.
    tied = np.count_nonzero(squares <= largest[:, None], axis=1) > k
    found[tied] = np.argsort(squares[tied], axis=1, kind="stable")[:, :k]
    return found
