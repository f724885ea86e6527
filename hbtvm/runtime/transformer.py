"""Pipelines whose last step transforms: a table's columns, computed by numpy."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from hbtvm.errors import InputError, MissingPackageError
from hbtvm.graph.feeds import Feed
from hbtvm.runtime.entry import Package
from hbtvm.runtime.feeds import FeedReader


class Transformer:
    """Computes the table of a package.

    Parameters
    ----------
    package
        One that has a table.

    Attributes
    ----------
    reader
        What reads rows' columns.
    """

    def __init__(self, package: Package) -> None:
        table = package.parts.table
        assert table is not None
        self._table = table
        feeds = [Feed(one.source, one.steps, one.allow_nan, one.allow_inf) for one in table.columns]
        self.reader = FeedReader(package.input, feeds, "float64", ("float32", "float64"))

    def transform(self, X: Any) -> Any:
        """Return the table's columns for rows; see `hbtvm.runtime.model.Model.transform`."""
        evaluator, rows = self.reader.evaluator(X)
        if not rows:
            raise InputError("expected at least one row, got none.")
        values = evaluator.table(self._table)
        texts = values.dtype == object and any(isinstance(value, str) for value in values.flat)
        if values.dtype.kind != "f" and not texts:
            values = values.astype(np.float64)
        if not self._table.sparse:
            return values
        try:
            sparse = importlib.import_module("scipy.sparse")
        except ImportError:
            raise MissingPackageError(
                "the pipeline gives sparse rows, for which scipy is needed: pip install scipy", name="scipy"
            ) from None
        return sparse.csr_matrix(values)
