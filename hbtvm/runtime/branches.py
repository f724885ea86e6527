"""`Branches`: transformers of a ColumnTransformer that stay in Python."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hbtvm.errors import InputError
from hbtvm.runtime.rows.beside import Beside
from hbtvm.runtime.rows.sparse import is_sparse


@dataclass(frozen=True)
class Branch:
    """A transformer of some columns."""

    estimator: Any
    columns: Any  # as the ColumnTransformer names them: names or positions, or one of them for a series
    width: int  # number of columns that it returns


@dataclass(frozen=True)
class Branches:
    """Computes rows with the results of branches beside them."""

    branches: Sequence[Branch]
    names: tuple[str, ...]  # of their columns
    n_features: int  # number of columns of the rows

    def transform(self, X: Any) -> Beside:
        """Return rows with further columns.

        Raises `InputError` if the rows have another number of columns than in training and no names, or a
        branch returns another number of columns.
        """
        if not hasattr(X, "__array__") and not is_sparse(X):
            X = np.asarray(X, dtype=object)
        if not hasattr(X, "columns") and (X.ndim != 2 or X.shape[1] != self.n_features):
            raise InputError(f"expected rows of {self.n_features} columns, got shape {X.shape}.")
        select = importlib.import_module("sklearn.utils")._safe_indexing
        results = [self._result(branch, select(X, branch.columns, axis=1)) for branch in self.branches]
        more = results[0] if len(results) == 1 else np.column_stack(results)
        return Beside(X.toarray() if is_sparse(X) else X, more, self.names)

    def _result(self, branch: Branch, rows: Any) -> np.ndarray:
        result = branch.estimator.transform(rows)
        result = result.toarray() if is_sparse(result) else np.asarray(result)
        if result.ndim != 2 or result.shape[1] != branch.width:
            name = type(branch.estimator).__name__
            raise InputError(f"{name} returned shape {result.shape}; expected {branch.width} columns.")
        return result
