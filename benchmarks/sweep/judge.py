"""Compare answers of one method by the tolerances of docs/reference/models.md."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.sweep import compare
from benchmarks.sweep.edges import parts


class Judge:
    """Compares answers of one method, by the tolerances of docs/reference/models.md."""

    def __init__(self, model: Any, method: str, trees: bool) -> None:
        self.model, self.method, self.trees = model, method, trees

    def difference(self, got: Any, expected: Any, rows: Any, title: str) -> str:
        """Say how an answer differs; empty if it does not."""
        half = "float16" in title
        single = half or "float32" in title or "Float32" in title or "mixed" in title
        # Radial kernels of rows that float32 holds, integers among them.
        single |= self._has("kernel") and any(word in title for word in ("int", "Int64", "bool", "category"))
        rtol = 2e-3 if half else 1e-5 if self.trees or single else 1e-6
        extreme = any(word in title for word in ("extreme", "huge", "larger", "denormal"))
        measures = self._measures()
        if extreme and measures:
            return ""
        scale = 1.0 if single or extreme or measures else 1e-2
        try:
            told = compare.difference(got, expected, rtol, scale, finite=extreme)
        except (AttributeError, TypeError, ValueError) as failure:
            return f"can't be compared: {type(failure).__name__}: {failure}"
        if told and self.method == "predict" and self._ties(got, expected, rows, rtol):
            return ""
        return "" if told and single and self._rounded(got, expected, rows) else told

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
        if not isinstance(rows, np.ndarray) or not isinstance(got, np.ndarray) or got.dtype.kind != "f":
            return False
        exact, error = compare.call(getattr(self.model, self.method), rows.astype(np.float64))
        if error is not None or compare.difference(expected, exact, 1e-3, 1.0):
            return False
        return not compare.difference(got, exact, 1e-5, 1.0)


def _absent(rows: Any) -> Any:
    raise AttributeError(rows)
