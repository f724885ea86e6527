"""`Selection`: some of the rows' columns, unchanged; and conversion of dense rows to sparse rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from hbtvm.errors import InputError, PackageError
from hbtvm.graph.graph import InputSpec
from hbtvm.runtime.rows.inputs import Inputs
from hbtvm.runtime.rows.sparse import SparseRows, is_sparse
from hbtvm.runtime.transforms.csr_rows import sparse_library


class Selection:
    """Selects columns of rows in any container, in the rows' dtype.

    Raises `PackageError` if there is no such column.

    `spec`: what the selector accepts.
    `kept`: the columns, in order.
    """

    def __init__(self, spec: InputSpec, kept: Sequence[int]) -> None:
        if max(kept) >= spec.n_features:
            raise PackageError(f"the package is damaged: it selects column {max(kept)} of {spec.n_features}.")
        self._inputs = Inputs(spec, "float64", ("float32", "float64"))
        self._kept = np.array(kept)

    def transform(self, X: Any) -> Any:
        """Return the columns: an array of numbers, or a sparse matrix (CSR) of sparse rows.

        Raises `InputError` if the rows don't fit the selector.
        """
        if is_sparse(X):
            # This makes the checks of dense rows.
            rows = len(SparseRows(self._inputs, X, ""))
            result = X.tocsr()[:, self._kept]
        else:
            numbers = self._inputs.numbers(X)
            rows = len(numbers)
            if numbers.dtype.kind == "f":
                self._inputs.look(numbers)
            result = numbers[:, self._kept]
        if not rows:
            raise InputError("expected at least one row, got none.")
        return result


def sparse_rows(tiles: Iterable[np.ndarray], like: Any) -> Any:
    """Return dense rows as a sparse matrix (CSR).

    `tiles`: at least one array of rows, in order.
    `like`: if a sparse array of scipy, the result is one, too; else it is a matrix.
    """
    scipy = sparse_library()
    kind = scipy.csr_array if isinstance(like, getattr(scipy, "sparray", ())) else scipy.csr_matrix
    parts = [kind(tile) for tile in tiles]
    return parts[0] if len(parts) == 1 else scipy.vstack(parts, format="csr")
