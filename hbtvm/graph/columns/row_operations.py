"""Operations on whole rows that the host computes, as no kernel does yet."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from hbtvm.graph.columns.table import RowOperation, Table


@dataclass(frozen=True, eq=False)
class Normalize(RowOperation):
    """Each row divided by its norm; rows of norm 0 stay as they are."""

    inputs: Table
    norm: Literal["l1", "l2", "max"]
    sparse: bool = False  # whether the library's rows are sparse: it adds up their norms in another order

    @property
    def width(self) -> int:  # type: ignore[override]
        """Number of columns."""
        return len(self.inputs)

    def reference(self, x: np.ndarray) -> np.ndarray:
        norms = self._sparse_norms(x) if self.sparse else self._norms(x)
        # scikit-learn takes norms of dense rows below this for zero.
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
        """Return norms, added up value by value in float64."""
        if self.norm == "max":
            return self._norms(x)
        parts = np.abs(x) if self.norm == "l1" else x * x
        total: np.ndarray = np.cumsum(parts, axis=1, dtype=np.float64)[:, -1]
        return total if self.norm == "l1" else np.sqrt(total)
