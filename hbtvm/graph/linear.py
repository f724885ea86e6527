"""`Linear`: weighted sums over numbers and categories, the second kind of anchor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, eq=False)
class Linear:
    """Sums of K weighted numbers and C table entries for each of O outputs.

    Score o of a row x is ``base_score[o] + sum over k of (missing[k, o] if isnan(x[feature[k]]) else
    (x[feature[k]] - shift[k]) * weight[k, o]) + sum over c of tables[c][x[code_feature[c]], o]``, in float64.
    Scalers, imputers and one-hot encoders in front of a linear model are shift, missing and tables: no wide
    vector ever exists.

    Attributes
    ----------
    n_features
        Columns of the input: numbers, and codes of categories as whole numbers.
    base_score
        float64, shape (O,).
    feature
        int32, shape (K,): the input column of each number.
    shift
        float64, shape (K,): subtracted first, so that a large mean cancels before weights round.
    weight
        float64, shape (K, O).
    missing
        float64, shape (K, O): what a missing number adds.
    code_feature
        int32, shape (C,): the input column of each code.
    tables
        float64, shapes (codes, O): what each code adds.
    """

    n_features: int
    base_score: np.ndarray
    feature: np.ndarray
    shift: np.ndarray
    weight: np.ndarray
    missing: np.ndarray
    code_feature: np.ndarray
    tables: tuple[np.ndarray, ...]

    compare_dtype = "float64"
    divisor = 1.0

    @property
    def n_outputs(self) -> int:
        """Scores of a row, O."""
        return len(self.base_score)

    def reference(self, X: np.ndarray) -> np.ndarray:
        """Return the scores of rows, shape (n, n_features): float64, shape (n, O); slow and obvious."""
        x = X.astype(np.float64)
        scores = np.tile(self.base_score, (len(x), 1))
        for k, feature in enumerate(self.feature):
            value = x[:, feature, None]
            scores += np.where(np.isnan(value), self.missing[k], (value - self.shift[k]) * self.weight[k])
        for table, feature in zip(self.tables, self.code_feature, strict=True):
            scores += table[x[:, feature].astype(np.int64)]
        return scores

    def facts(self) -> dict[str, Any]:
        """What the runtime and its user need to know."""
        return {
            "operator": "linear",
            "n_features": self.n_features,
            "n_outputs": self.n_outputs,
            "compare_dtype": "float64",
            "base_score": self.base_score.tolist(),
            "divisor": 1.0,
            "numbers": len(self.feature),
            "categories": len(self.tables),
            "entries": sum(map(len, self.tables)),
        }
