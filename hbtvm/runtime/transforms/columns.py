"""`TransformedColumns`: results of ``transform``, in the container that the library returns."""

from __future__ import annotations

from typing import Any

import numpy as np

from hbtvm.errors import InputError
from hbtvm.graph.outputs.output import columns
from hbtvm.runtime.feeds.reader import FeedReader
from hbtvm.runtime.kernels import Kernels
from hbtvm.runtime.package.entry import Package
from hbtvm.runtime.rows.sparse import is_sparse
from hbtvm.runtime.text.library import TextLibrary
from hbtvm.runtime.transforms.selection import Selection, sparse_rows
from hbtvm.runtime.transforms.transformer import Transformer
from hbtvm.runtime.unreadable import reading

_EXACT = 2**53  # integers up to this are exact in float64
_BLOCK = 1 << 19  # dense values in memory at a time while they become sparse rows


class TransformedColumns:
    """The ``transform`` of a package that does not predict.

    It selects columns of the rows, or computes them by numpy (`Transformer`) or by kernels.

    `package`: the package; its ``transforms`` is True.
    `kernels`: its kernels, if it has any.
    `library`: the library that counts terms of texts.
    """

    def __init__(self, package: Package, kernels: Kernels, library: TextLibrary) -> None:
        out = package.output
        self._kernels, self._output, self._keeps_integers = kernels, out, package.keeps_integers
        self._computed = Transformer(package, library) if package.parts.table is not None else None
        self._selection = Selection(package.input, out.selects) if out.selects else None
        self._convert = {
            np.dtype(name): columns(out.label_dtype, name, out.keeps_axis) for name in ("float32", "float64")
        }

    @property
    def pipeline(self) -> FeedReader | None:
        """The reader of a pipeline's rows."""
        return self._kernels.pipeline if self._computed is None else self._computed.reader

    def example(self, columns: int) -> np.ndarray:
        """Return one row of results without computing it; shape (1, columns)."""
        raw = np.zeros((1, columns))
        return raw if self._computed is not None else self._convert[raw.dtype](raw)

    def transform(self, X: Any) -> Any:
        """Return the transformed columns of rows."""
        result = self._transform(X)
        return self._as_integers(X, result) if self._keeps_integers else result

    def _as_integers(self, X: Any, result: Any) -> Any:
        """Return `result` in the dtype of `X` if that holds integers or bools."""
        inputs = self._kernels.inputs
        plain = inputs.plain if isinstance(inputs, FeedReader) else inputs
        dtype = X.dtype if is_sparse(X) else plain.numbers(X).dtype
        if dtype.kind not in "iub":
            return result
        values = result.data if is_sparse(result) else np.asarray(result)
        if dtype.itemsize == 8 and np.abs(values).max(initial=0.0) > _EXACT:
            raise InputError(f"got integers beyond {_EXACT:,}, which are computed in float64.")
        if hasattr(result, "astype"):
            return result.astype(dtype)
        # A frame of Polars
        return type(result)({name: result[name].to_numpy().astype(dtype) for name in result.columns})

    def _transform(self, X: Any) -> Any:
        if self._selection is not None:
            with reading(X):
                return self._selection.transform(X)
        kernels, container = self._kernels, self._output.container
        sparse = type(X) is not np.ndarray and is_sparse(X)
        if self._computed is not None:
            with reading(X):
                result = self._computed.transform(X)
            if self._output.label_dtype == "int64":
                return (result if self._output.keeps_axis else result[:, 0]).astype(np.int64)
            if sparse and container == "rows" and isinstance(result, np.ndarray):
                return sparse_rows([result], X)
            return result
        if sparse:
            tiles = (self._convert[dtype](raw) for dtype, raw in kernels.raw_of_sparse(X))
            if container == "array":
                return np.concatenate(list(tiles))
            return sparse_rows(tiles, X if container == "rows" else None)
        rows = kernels.prepared(X)
        if container == "sparse":
            count = max(1, _BLOCK // self._output.n_outputs)
            blocks = (rows[start : start + count] for start in range(0, len(rows), count))
            return sparse_rows((self._convert[block.dtype](kernels.raw(block)) for block in blocks), None)
        if kernels.host is None:
            kernels.warm_up()
        if kernels.host is not None and kernels.host.transform_prepared is not None:
            columns = kernels.host.transform_prepared(rows)
            if columns is not None:
                return columns
        return self._convert[rows.dtype](kernels.raw(rows))
