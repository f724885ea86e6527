"""Pipelines whose last step transforms: a table's columns by numpy, terms of texts by their own code."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from hbtvm.errors import InputError, MissingPackageError
from hbtvm.graph.evaluate import Evaluator
from hbtvm.graph.feeds import Feed
from hbtvm.graph.fold_text import blocks_of, narrowed
from hbtvm.graph.table import Made, Table
from hbtvm.graph.text import Vectorize
from hbtvm.runtime.entry import Package
from hbtvm.runtime.feeds import FeedReader, place_of
from hbtvm.runtime.raw import RawColumn
from hbtvm.runtime.text_feeds import TextOperation, text_column, vectorizer
from hbtvm.runtime.text_kernel import TextLibrary

_MOST_INT32 = (1 << 31) - 1


class Transformer:
    """Computes the table of a package.

    Parameters
    ----------
    package
        One that has a table.
    library
        The code that cuts texts into terms.

    Attributes
    ----------
    reader
        What reads rows' columns.
    """

    def __init__(self, package: Package, library: TextLibrary) -> None:
        table = package.parts.table
        assert table is not None
        self._table, self._frame = table, package.frame
        feeds, self._blocks = list[Feed](), list[Table | TextOperation]()
        # Columns of terms with steps of their own, or between other columns.
        self._terms: dict[Vectorize, TextOperation] = {}
        for block in blocks_of(table):
            if isinstance(block, Table):
                columns = [Feed(one.source, one.steps, one.allow_nan, one.allow_inf) for one in block.columns]
                own = narrowed(columns)
                feeds += own
                changed = [
                    replace(one, source=feed.source) for one, feed in zip(block.columns, own, strict=True)
                ]
                self._blocks.append(replace(block, columns=tuple(changed)))
                for feed in own:
                    operation = vectorizer(feed.source)
                    if operation is not None and operation not in self._terms:
                        where = place_of(package.input, text_column(operation))
                        self._terms[operation] = TextOperation(operation, library, where)
            else:
                where = place_of(package.input, text_column(block))
                self._blocks.append(TextOperation(block, library, where))
                feeds.append(Feed(Made(block, 0)))
        dtypes = ("float32", "float64")
        self.reader = FeedReader(package.input, feeds, "float64", dtypes, library=library)

    def transform(self, X: Any) -> Any:
        """Return the table's columns for rows; see `hbtvm.runtime.model.Model.transform`."""
        columns, rows = self.reader.columns(X)
        if not rows:
            raise InputError("expected at least one row, got none.")
        evaluator = self.reader.evaluator(columns)
        for operation, terms in self._terms.items():
            evaluator.give(operation, terms.sums(columns[terms.raw]))
        if self._frame is not None:
            return self._data_frame(X, evaluator, columns)
        if not self._table.sparse:
            return _side_by_side([self._dense(block, evaluator, columns) for block in self._blocks])
        try:
            sparse = importlib.import_module("scipy.sparse")
        except ImportError:
            raise MissingPackageError(
                "the pipeline gives sparse rows, for which scipy is needed: pip install scipy", name="scipy"
            ) from None
        blocks = [self._sparse(sparse, block, evaluator, columns) for block in self._blocks]
        return blocks[0] if len(blocks) == 1 else sparse.hstack(blocks, "csr")

    def _dense(
        self, block: Table | TextOperation, evaluator: Evaluator, columns: Mapping[int, RawColumn]
    ) -> np.ndarray:
        if isinstance(block, Table):
            return _plain(evaluator.table(block))
        return block.sums(columns[block.raw]).astype(block.kernel.operation.dtype, copy=False)

    def _sparse(
        self, scipy: Any, block: Table | TextOperation, evaluator: Evaluator, columns: Mapping[int, RawColumn]
    ) -> Any:
        if isinstance(block, Table):
            return scipy.csr_matrix(self._dense(block, evaluator, columns))
        at, values, starts = block.kernel.rows(block.texts(columns[block.raw]))
        values = values.astype(block.kernel.operation.dtype, copy=False)
        # Its arrays are known to be right: to have scipy check them takes longer than to make a row's.
        matrix = scipy.csr_matrix((len(starts) - 1, block.kernel.width), dtype=values.dtype)
        narrow = np.int32 if len(values) <= _MOST_INT32 else np.int64
        matrix.data, matrix.indices = values, at.astype(narrow, copy=False)
        matrix.indptr = starts.astype(narrow, copy=False)
        matrix.has_sorted_indices = matrix.has_canonical_format = True
        return matrix

    def _data_frame(self, X: Any, evaluator: Evaluator, given: Mapping[int, RawColumn]) -> Any:
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
        columns: list[np.ndarray] = []
        for block in self._blocks:
            if isinstance(block, Table):
                columns += [_plain(evaluator.checked(column)) for column in block.columns]
            else:
                columns += list(self._dense(block, evaluator, given).T)
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


def _side_by_side(blocks: list[np.ndarray]) -> np.ndarray:
    return blocks[0] if len(blocks) == 1 else np.concatenate(blocks, axis=1)


def _plain(values: np.ndarray) -> np.ndarray:
    """Python values as numbers, where none of them is a text."""
    texts = values.dtype == object and any(isinstance(value, str) for value in values.flat)
    return values if values.dtype.kind == "f" or texts else values.astype(np.float64)
