"""Convert scipy's sparse rows to dense tiles for kernels, one tile at a time.

Absent entries follow the training library's convention: to XGBoost they are missing values
(and explicit zeros are zeros), to LightGBM and scikit-learn they are zeros. This module does not import
scipy: a matrix of it shows that it is loaded.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from hbtvm.errors import ROW, InputError
from hbtvm.runtime.memory import empty
from hbtvm.runtime.rows.frames import NUMBERS
from hbtvm.runtime.rows.inputs import Inputs

_TILE_BYTES = 1 << 22  # bytes of dense rows at a time, unless a single row takes more


def is_sparse(X: Any) -> bool:
    """Return whether rows are a sparse matrix or array of scipy."""
    # Not by attributes: a pandas frame takes microseconds to report a missing attribute.
    scipy = sys.modules.get("scipy.sparse")
    return scipy is not None and bool(scipy.issparse(X))


def refuse_sparse(library: str, model: str) -> str | None:
    """Return the reason why a model takes no sparse rows; None if it does."""
    if library == "scikit-learn" and model.startswith("HistGradientBoosting"):
        return f"{model} does not take sparse rows; expected dense rows."
    return None


class SparseRows:
    """Sparse rows, checked and in a kernel's type.

    Duplicate entries are added up, as in scipy. Besides the dense tile, it needs memory for the entries in a
    kernel's type, and for a copy in rows (CSR) unless the matrix is CSR without duplicates.

    Raises `InputError` if the rows don't fit the model.

    `inputs`: what the model accepts.
    `X`: a sparse matrix or array of any format, real numbers, shape (n, n_features).
    `library`: the training library, whose convention holds.
    `wide`: whether integers become float64, including those that float32 holds.
    """

    def __init__(self, inputs: Inputs, X: Any, library: str, wide: bool = False) -> None:
        inputs.check_sparse(X)
        inputs.check_shape(X.shape)
        if X.dtype.kind not in NUMBERS:
            raise InputError(f"expected numbers, got a sparse matrix of {X.dtype}.")
        check_sparse(X)
        rows = X.tocsr()
        if rows is not X:
            check_sparse(rows)
        if not rows.has_canonical_format:
            # Copied, so that the caller's matrix stays unchanged.
            rows = rows.copy() if rows is X else rows
            rows.sum_duplicates()
        self.shape: tuple[int, int] = X.shape
        self._indptr, self._indices = rows.indptr, rows.indices
        whole = wide and rows.dtype.kind in "iub"
        self._values = inputs.cast(rows.data.astype(np.float64) if whole else rows.data)
        self._absent = np.nan if library == "xgboost" else 0.0
        spec = inputs.spec
        # scikit-learn accepts missing values in dense rows only.
        self._refuse(
            inputs,
            np.isnan(self._values) if library == "scikit-learn" or not spec.allow_nan else None,
            "NaN, which the model does not take in sparse rows",
        )
        self._refuse(
            inputs,
            None if spec.allow_inf else np.isinf(self._values),
            f"infinity or a value too large for {self._values.dtype}",
        )

    def __len__(self) -> int:
        return self.shape[0]

    @property
    def dtype(self) -> np.dtype:
        """Type of the tiles."""
        return self._values.dtype

    def tiles(self) -> Iterator[tuple[int, np.ndarray]]:
        """Yield tiles of dense rows, all in the same memory.

        Yields the first row's number, and the rows: of the kernel's type, C-contiguous, shape (rows,
        n_features), valid until the next iteration.
        """
        n, width = self.shape
        count = max(1, min(n, _TILE_BYTES // (width * self.dtype.itemsize)))
        tile = empty((count, width), self.dtype)
        tile.fill(self._absent)
        flat = tile.reshape(-1)
        for start in range(0, n, count):
            stop = min(start + count, n)
            first, last = int(self._indptr[start]), int(self._indptr[stop])
            entries = np.diff(self._indptr[start : stop + 1])
            at = np.repeat(np.arange(stop - start, dtype=np.int64) * width, entries)
            at += self._indices[first:last]
            flat[at] = self._values[first:last]
            yield start, tile[: stop - start]
            # Clear only the written entries, so that a tile costs its entries, not its size.
            flat[at] = self._absent

    def _refuse(self, inputs: Inputs, bad: np.ndarray | None, what: str) -> None:
        if bad is not None and bad[: self._indptr[-1]].any():
            entry = int(np.flatnonzero(bad)[0])
            row = int(np.searchsorted(self._indptr, entry, "right")) - 1
            column = inputs.columns.name(int(self._indices[entry]))
            raise InputError(f"{column}, row {ROW}: got {what}; expected finite numbers.", row)


def check_sparse(X: Any) -> None:
    """Refuse a sparse matrix with entries outside of it, with which scipy's conversions leave its memory.

    Raises `InputError` if indices are not whole numbers, or outside of its rows and columns.
    """
    if X.format == "coo":
        for places, size in zip((X.row, X.col), X.shape, strict=True):
            if len(places) and not 0 <= places.min() <= places.max() < size:
                raise InputError("the sparse matrix is damaged: an entry is outside of it.")
    if X.format not in ("csr", "csc", "bsr"):  # scipy checks other formats as far as necessary
        return
    rows, columns = X.shape
    axis = "columns"
    if X.format == "csc":
        rows, columns, axis = columns, rows, "rows"
    if X.format == "bsr":
        high, wide = X.blocksize
        rows, columns = rows // high, columns // wide
    starts, places, count = X.indptr, X.indices, len(X.data)
    if any(np.ndim(part) != 1 or np.asarray(part).dtype.kind not in "iu" for part in (starts, places)):
        raise InputError("the sparse matrix is damaged: its indices are not integers.")
    if np.ndim(X.data) != (3 if X.format == "bsr" else 1):
        raise InputError("the sparse matrix is damaged: its values are in no row.")
    if len(starts) != rows + 1 or starts[0] != 0 or (starts[1:] < starts[:-1]).any() or starts[-1] > count:
        raise InputError("the sparse matrix is damaged: its rows overlap.")
    places = places[: starts[-1]]
    if len(places) != starts[-1] or (len(places) and not 0 <= places.min() <= places.max() < columns):
        raise InputError(f"the sparse matrix is damaged: an entry is outside of its {columns} {axis}.")
