"""Operations on whole rows that the host computes: what no kernel takes yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from hbtvm.graph.columns.table import RowOperation, Table


@dataclass(frozen=True, eq=False)
class Normalize(RowOperation):
    """Each row divided by its norm; rows whose norm is 0 stay as they are."""

    inputs: Table
    # Sum of absolute values, root of the sum of squares, or largest absolute value
    norm: Literal["l1", "l2", "max"]
    # Whether the library has the rows as a sparse matrix, whose norms it adds up in another order
    sparse: bool = False

    @property
    def width(self) -> int:  # type: ignore[override]
        """Columns that it makes."""
        return len(self.inputs)

    def reference(self, x: np.ndarray) -> np.ndarray:
        norms = self._sparse_norms(x) if self.sparse else self._norms(x)
        # Of dense rows, scikit-learn takes norms up to this for zero.
        small = norms == 0 if self.sparse else norms < 10 * np.finfo(norms.dtype).eps
        norms = np.where(small, norms.dtype.type(1), norms)
        result: np.ndarray = (x / norms[:, None]).astype(x.dtype)
        return result

    def _norms(self, x: np.ndarray) -> np.ndarray:
        result: np.ndarray
        if self.norm == "l1":
            result = np.abs(x).sum(axis=1)
        elif self.norm == "l2":
            result = np.sqrt(np.einsum("ij,ij->i", x, x))
        else:
            result = np.abs(x).max(axis=1)
        return result

    def _sparse_norms(self, x: np.ndarray) -> np.ndarray:
        """Norms that are added up one by one in float64."""
        if self.norm == "max":
            return self._norms(x)
        parts = np.abs(x) if self.norm == "l1" else x * x
        total: np.ndarray = np.cumsum(parts, axis=1, dtype=np.float64)[:, -1]
        return total if self.norm == "l1" else np.sqrt(total)
