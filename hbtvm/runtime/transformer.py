"""Pipelines whose last step transforms: a table's columns, computed by numpy."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from hbtvm.errors import InputError, MissingPackageError
from hbtvm.graph.evaluate import Evaluator
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
        self._table, self._frame = table, package.frame
        feeds = [Feed(one.source, one.steps, one.allow_nan, one.allow_inf) for one in table.columns]
        self.reader = FeedReader(package.input, feeds, "float64", ("float32", "float64"))

    def transform(self, X: Any) -> Any:
        """Return the table's columns for rows; see `hbtvm.runtime.model.Model.transform`."""
        evaluator, rows = self.reader.evaluator(X)
        if not rows:
            raise InputError("expected at least one row, got none.")
        if self._frame is not None:
            return self._data_frame(X, evaluator)
        values = evaluator.table(self._table)
        values = _plain(values)
        if not self._table.sparse:
            return values
        try:
            sparse = importlib.import_module("scipy.sparse")
        except ImportError:
            raise MissingPackageError(
                "the pipeline gives sparse rows, for which scipy is needed: pip install scipy", name="scipy"
            ) from None
        return sparse.csr_matrix(values)

    def _data_frame(self, X: Any, evaluator: Evaluator) -> Any:
        """The table as a data frame of the library that the pipeline was told to give."""
        try:
            library = importlib.import_module(str(self._frame))
        except ImportError:
            raise MissingPackageError(
                f"the pipeline gives data frames of {self._frame} (set_output), which is not installed: "
                f"pip install {self._frame}",
                name=self._frame,
            ) from None
        names = self._table.names or ()
        columns = [_plain(evaluator.checked(column)) for column in self._table.columns]
        if self._frame == "pandas":
            # By place, as two columns may have one name.
            frame = library.DataFrame(dict(enumerate(columns)), copy=False)
            frame.columns = list(names)
            if isinstance(X, library.DataFrame):
                frame.index = X.index
            return frame
        series = [
            library.Series(name, [None if one != one else one for one in x.tolist()])
            if x.dtype == object
            else library.Series(name, x)
            for name, x in zip(names, columns, strict=True)
        ]
        return library.DataFrame(series)


def _plain(values: np.ndarray) -> np.ndarray:
    """Python values as numbers, where none of them is a text."""
    texts = values.dtype == object and any(isinstance(value, str) for value in values.flat)
    return values if values.dtype.kind == "f" or texts else values.astype(np.float64)
