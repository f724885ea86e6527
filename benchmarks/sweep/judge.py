"""Compare answers of one method by the tolerances of docs/reference/models.md."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from benchmarks.sweep import compare
from benchmarks.sweep.edges import has_trees, parts

_FAR = 1e12
"""From here on, distances and sums keep nothing of what is near."""


class Judge:
    """Compares answers of one method, by the tolerances of docs/reference/models.md."""

    def __init__(self, model: Any, method: str, trees: bool) -> None:
        self.model, self.method, self.trees = model, method, trees

    def difference(self, got: Any, expected: Any, rows: Any, title: str, *, far: bool = False) -> str:
        """Say how an answer differs; empty if it does not.

        Parameters
        ----------
        far
            Whether all rows have huge values: only numbers that are finite in the library's answer count.
        """
        half = "float16" in title
        single = half or "float32" in title or "Float32" in title or "mixed" in title
        # Radial kernels of rows that float32 holds, integers among them.
        single |= self._of_float32()
        single |= self._radial() and any(word in title for word in ("int", "Int64", "bool", "category"))
        rtol = 2e-3 if half else 1e-5 if self.trees or single else 1e-6
        rounds = single and (self._radial() or getattr(expected, "dtype", None) != np.float64)
        scale = 1.0 if rounds or far or self._measures() else 1e-2
        try:
            told = compare.difference(got, expected, rtol, scale, finite=far, least=self._offset())
        except (AttributeError, TypeError, ValueError) as failure:
            return f"can't be compared: {type(failure).__name__}: {failure}"
        if told and self.method == "predict" and self._ties(got, expected, rows, rtol):
            return ""
        return "" if told and single and self._rounded(got, expected, rows) else told

    def _radial(self) -> bool:
        """Whether an estimator in the model has a radial kernel."""
        return any(getattr(part, "kernel", None) == "rbf" for part in parts(self.model))

    def _of_float32(self) -> bool:
        """Whether the model has parameters in float32: those, and what is computed with them, are rounded."""
        arrays = (value for part in parts(self.model) for value in vars(part).values())
        return any(isinstance(one, np.ndarray) and one.dtype == np.float32 for one in arrays)

    def _offset(self) -> float:
        """What an outlier detector takes from its scores."""
        return max(float(np.max(np.abs(getattr(part, "offset_", 0.0)))) for part in parts(self.model))

    def _measures(self) -> bool:
        """Whether distances decide, which are equal within rounding for rows far from all points."""
        return self._has("n_neighbors", "radius", "cluster_centers_", "centroids_")

    def _has(self, *names: str) -> bool:
        """Whether an estimator in the model has one of some attributes."""
        return any(hasattr(part, name) for part in parts(self.model) for name in names)

    def _ties(self, got: Any, expected: Any, rows: Any, rtol: float) -> bool:
        """Whether labels differ only where the library's two highest scores are equal within rounding."""
        if not isinstance(got, np.ndarray) or got.shape != np.shape(expected) or got.ndim != 1:
            return False
        if got.dtype.kind != expected.dtype.kind or got.dtype.kind == "f":
            return False
        apart = compare.rows_apart(got, expected)
        for scores in self._scores(rows):
            largest = np.abs(scores).max(axis=-1, initial=0.0, where=np.isfinite(scores))
            if scores.ndim == 1:
                margin, largest = np.abs(scores), np.max(largest)
            else:
                ordered = np.sort(scores, axis=1)
                margin = ordered[:, -1] - ordered[:, -2]
            with np.errstate(all="ignore"):
                return not (margin > rtol * largest)[apart].any()
        return False

    def _scores(self, rows: Any) -> Iterator[np.ndarray]:
        """Yield scores by which the library chooses labels, shape (n,) or (n, labels >= 2)."""
        calls = [(getattr(self.model, name, _absent), 1) for name in ("decision_function", "predict_proba")]
        calls += [(getattr(self.model, "transform", _absent), -1)]
        centers = getattr(self.model, "cluster_centers_", None)
        if centers is not None:
            calls = [(lambda X: ((np.asarray(X, np.float64)[:, None] - centers) ** 2).sum(2), -1)]
        for function, sign in calls:
            scores, error = compare.call(function, rows)
            if error is not None or not isinstance(scores, np.ndarray) or scores.dtype.kind != "f":
                continue
            if scores.ndim == 1 or scores.shape[1] > 1:
                yield sign * scores.astype(np.float64)

    def _rounded(self, got: Any, expected: Any, rows: Any) -> bool:
        """Whether an answer is the library's for the same rows in float64, which its own float32 rounds."""
        known = isinstance(rows, np.ndarray) or hasattr(rows, "iloc")
        if not known or not isinstance(got, np.ndarray) or got.dtype.kind != "f":
            return False
        exact, error = compare.call(getattr(self.model, self.method), rows.astype(np.float64))
        if error is not None or compare.difference(expected, exact, 5e-3, 1.0):
            return False
        return not compare.difference(got, exact, 1e-5, 1.0)


@dataclass(frozen=True)
class Answers:
    """hbtvm's answer and the library's for the same rows."""

    judge: Judge
    title: str
    rows: Any
    got: Any
    expected: Any

    def difference(self) -> str:
        """Say how hbtvm's answer differs; rows with huge values are compared apart from others."""
        far = far_rows(self.rows)
        if not far.any():
            return self._compared(False)
        try:
            return self.among(~far)._compared(False) or self.among(far)._of_far()
        except (IndexError, ValueError):
            return self._compared(False)

    def _of_far(self) -> str:
        """As `difference`, of rows with huge values: what a last place of these changes does not count."""
        told = self._compared(True)
        if not told or has_trees(self.judge.model) or not isinstance(self.got, np.ndarray):
            return told
        moved = [
            answer for rows in _neighbours(self.rows) for answer in [self._theirs(rows)] if answer is not None
        ]
        if self.got.dtype.kind != "f":
            unstable = sum((np.asarray(answer != self.expected) for answer in moved), np.zeros(1, bool))
            return told if (np.asarray(self.got != self.expected) & ~unstable).any() else ""
        with np.errstate(all="ignore"):
            spread = sum((np.abs(answer - self.expected) for answer in moved), np.zeros(1))
            largest = np.max(np.abs(self.expected), axis=0, initial=0.0, where=np.isfinite(self.expected))
            unstable = (np.abs(self.got - self.expected) <= 4 * spread) | (spread > 1e-2 * largest)
        expected = np.where(unstable, self.got, self.expected)
        return replace(self, expected=expected)._compared(True)

    def _theirs(self, rows: np.ndarray) -> Any:
        """The library's answer for other rows; None where it raises."""
        return compare.call(getattr(self.judge.model, self.judge.method), rows)[0]

    def among(self, some: np.ndarray) -> Answers:
        """Return the answers for some rows, by a mask of shape (n,)."""
        chosen = (compare.take(value, some) for value in (self.rows, self.got, self.expected))
        return Answers(self.judge, self.title, *chosen)

    def of_finite(self) -> Answers:
        """Return the answers with the library's for rows with huge values, if hbtvm's is not finite there.

        Labels of these rows may come from numbers that are not finite.
        """
        far = far_rows(self.rows)
        if not isinstance(self.got, np.ndarray) or self.got.shape != self.expected.shape:
            return self
        far = far.reshape(-1, *[1] * (self.got.ndim - 1))
        if self.got.dtype.kind == "f":
            far = far & ~np.isfinite(self.got)
        return replace(self, got=np.where(far, self.expected, self.got))

    def of_floats(self) -> Answers:
        """Return the answers with the library's for the rows as float64."""
        dense = self.rows.toarray() if hasattr(self.rows, "toarray") else self.rows
        rows = np.asarray(dense, np.float64)
        expected, error = compare.call(getattr(self.judge.model, self.judge.method), rows)
        return self if error else replace(self, rows=rows, expected=expected)

    def _compared(self, far: bool) -> str:
        return self.judge.difference(self.got, self.expected, self.rows, self.title, far=far)


def _neighbours(rows: np.ndarray) -> Iterator[np.ndarray]:
    """Yield some rows whose values are one place above or below; of integers, of float64."""
    floats = rows if rows.dtype.kind == "f" else rows.astype(np.float64)
    signs = np.random.default_rng(0).choice([-np.inf, np.inf], (8, *rows.shape))
    for toward in signs.astype(floats.dtype):
        with np.errstate(all="ignore"):
            yield np.nextafter(floats, toward)


def far_rows(rows: Any) -> np.ndarray:
    """Return which rows of an array of numbers have huge values, shape (n,); none of other rows."""
    if not isinstance(rows, np.ndarray) or rows.dtype.kind not in "fiu" or not rows.size:
        return np.zeros(1, bool)
    with np.errstate(all="ignore"):
        huge = np.isfinite(rows) & (np.abs(rows.astype(np.float64)) >= _FAR)
    return np.asarray(huge.reshape(len(rows), -1).any(axis=1))


def _absent(rows: Any) -> Any:
    raise AttributeError(rows)
