"""`Columns`: a pipeline whose last step transforms, computed by the host without a kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from hbtvm.graph.columns.evaluate import evaluate
from hbtvm.graph.columns.table import Table

Frame = Literal["pandas", "polars"]


@dataclass(frozen=True, eq=False)
class Columns:
    """A table whose columns are the scores."""

    n_features: int  # columns of the input
    table: Table  # the scores, with the names of ``get_feature_names_out``
    frame: Frame | None = None  # the library of the pipeline's data frames (``set_output``); None for arrays

    compare_dtype = "float64"
    divisor = 1.0

    @property
    def n_outputs(self) -> int:
        """Number of columns."""
        return len(self.table)

    @property
    def base_score(self) -> np.ndarray:
        """float64, shape (n_outputs,): zeros."""
        return np.zeros(len(self.table))

    def reference(self, X: np.ndarray) -> np.ndarray:
        """Return the columns for rows of shape (n, n_features): shape (n, n_outputs)."""
        return evaluate(self.table, list(X.T))

    def facts(self) -> dict[str, Any]:
        """Return facts for the runtime and its user."""
        return {
            "operator": "columns",
            "n_features": self.n_features,
            "n_outputs": self.n_outputs,
            "compare_dtype": "float64",
            "base_score": self.base_score.tolist(),
            "divisor": 1.0,
        }
