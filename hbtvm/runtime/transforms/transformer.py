"""Pipelines whose last step transforms: numpy computes a table's columns, compiled code terms of texts."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from hbtvm.errors import InputError, missing_package
from hbtvm.graph.columns.evaluate import Evaluator
from hbtvm.graph.columns.feeds import Feed
from hbtvm.graph.columns.table import Column, Made, Raw, Table
from hbtvm.graph.columns.text import Vectorize
from hbtvm.graph.networks.fold_text import blocks_of, narrowed
from hbtvm.runtime.feeds.reader import FeedReader, place_of
from hbtvm.runtime.feeds.text import TextOperation, text_column, vectorizer
from hbtvm.runtime.package.entry import Package
from hbtvm.runtime.rows.raw import Numbers, RawColumn
from hbtvm.runtime.text.library import TextLibrary
from hbtvm.runtime.transforms.csr_rows import MOST_INT32, CsrRows, side_by_side, sparse_library
from hbtvm.runtime.transforms.marks import Marks, are_marks
from hbtvm.runtime.transforms.sparse_entries import is_known
from hbtvm.runtime.transforms.sparse_table import SparseTable


class Transformer:
    """Computes the table of a package.

    `package`: a package with a table.
    `library`: the code that cuts texts into terms.
    `reader`: the reader of rows' columns.
    """

    def __init__(self, package: Package, library: TextLibrary) -> None:
        table = package.parts.table
        assert table is not None
        self._table, self._frame = table, package.frame
        feeds, self._blocks = list[Feed](), list[Table | TextOperation]()
        # Columns of terms with further steps, or between other columns.
        self._terms: dict[Vectorize, TextOperation] = {}
        for block in blocks_of(table):
            if isinstance(block, Table):
                columns = [
                    Feed(column.source, column.steps, column.allow_nan, column.allow_inf)
                    for column in block.columns
                ]
                block_feeds = narrowed(columns)
                feeds += block_feeds
                changed = [
                    replace(column, source=feed.source)
                    for column, feed in zip(block.columns, block_feeds, strict=True)
                ]
                self._blocks.append(replace(block, columns=tuple(changed)))
                for feed in block_feeds:
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
        self._input, self._library = package.input, library
        self._marks = self._marks_of_table()
        # An iterator would be exhausted at the second reading.
        several = len(self._blocks) > 1 and package.input.rows_are_values
        self._plans = not several and self._frame is None
        # Created with the first rows, because it needs scipy.
        self._sparse_blocks: list[SparseTable | CsrRows | None] | None = None

    def _marks_of_table(self) -> Marks | None:
        """Return the marks of a table that has only marks of missing values; else None."""
        only = self._blocks[0]
        if len(self._blocks) > 1 or not isinstance(only, Table) or self._table.sparse:
            return None
        if not are_marks(only.columns):
            return None
        feeds = []
        for column in only.columns:
            assert isinstance(column.source, Raw)
            where = place_of(self._input, column.source.index)
            feeds.append(Feed(column.source, column.steps, column.allow_nan, column.allow_inf, where))
        return Marks(feeds, self._input.n_features)

    def transform(self, X: Any) -> Any:
        """Return the table's columns for rows; see `hbtvm.runtime.model.Model.transform`."""
        if self._table.sparse and self._frame is None:
            return self._sparse(X)
        marks = self._marks
        if marks is not None and self._frame is None and type(X) is np.ndarray and X.size:
            mask = marks.of_array(X)
            if mask is not None:
                return mask
        columns, evaluator = self._read(X)
        if self._frame is not None:
            return self._data_frame(X, evaluator, columns)
        if marks is not None:
            return np.stack(marks.of_columns(evaluator), axis=1)
        return _side_by_side([self._dense(block, evaluator, columns) for block in self._blocks])

    def _read(self, X: Any) -> tuple[dict[int, RawColumn], Evaluator]:
        """Return the input's columns and the evaluator of tables."""
        columns, rows = self.reader.columns(X)
        if not rows:
            raise InputError("expected at least one row, got none.")
        together = self._frame is not None and not self._input.by_name
        typed = _of_one_type(columns, self.reader.types_beside(X)) if together else columns
        evaluator = self.reader.evaluator(typed)
        for operation, terms in self._terms.items():
            evaluator.give(operation, terms.sums(columns[terms.raw]))
        return columns, evaluator

    def _sparse(self, X: Any) -> Any:
        """Return the table as a sparse matrix."""
        if self._sparse_blocks is None:
            self._sparse_blocks = [self._sparse_block(block) for block in self._blocks]
        if len(self._blocks) == 1 and isinstance(self._sparse_blocks[0], SparseTable):
            return self._sparse_blocks[0].rows(X)
        row_like = type(X) is list or (type(X) is np.ndarray and X.dtype == object and X.ndim)
        if row_like and len(X) == 1 and len(self._blocks) == 1:
            row = self._row_of_terms(X[0].tolist() if type(X[0]) is np.ndarray else X[0])
            if row is not None:
                return row
        evaluator = None
        if None in self._sparse_blocks:
            columns, evaluator = self._read(X)
        else:
            columns, rows = self.reader.columns(X)
            if not rows:
                raise InputError("expected at least one row, got none.")
        parts = []
        for block, maker in zip(self._blocks, self._sparse_blocks, strict=True):
            if isinstance(maker, SparseTable):
                parts.append(maker.rows(X))
            elif isinstance(block, Table):
                assert evaluator is not None
                parts.append(sparse_library().csr_matrix(self._dense(block, evaluator, columns)))
            else:
                assert maker is not None
                parts.append(_terms(block, maker, columns[block.raw]))
        return parts[0] if len(parts) == 1 else side_by_side(parts)

    def _row_of_terms(self, value: Any) -> Any:
        """Return the row of a table of one text's terms; None for other tables and values."""
        assert self._sparse_blocks is not None
        block, maker = self._blocks[0], self._sparse_blocks[0]
        if not isinstance(maker, CsrRows) or isinstance(block, Table):
            return None
        entries = block.row(value) if self._input.rows_are_values else None
        if entries is None:
            return None
        columns, values = entries
        return maker.make(values, columns, np.array((0, len(values)), np.int32))

    def _sparse_block(self, block: Table | TextOperation) -> SparseTable | CsrRows | None:
        """Return the computation of a block's sparse rows; None if its columns are computed densely."""
        if not isinstance(block, Table):
            return CsrRows(block.kernel.width, np.dtype(block.kernel.operation.dtype))
        known = self._plans and is_known(block)
        return SparseTable(self._input, block, self._library) if known else None

    def _dense(
        self, block: Table | TextOperation, evaluator: Evaluator, columns: Mapping[int, RawColumn]
    ) -> np.ndarray:
        if isinstance(block, Table):
            return _plain(evaluator.table(block))
        return block.sums(columns[block.raw]).astype(block.kernel.operation.dtype, copy=False)

    def _data_frame(self, X: Any, evaluator: Evaluator, columns: Mapping[int, RawColumn]) -> Any:
        """Return the table as a data frame of the pipeline's library."""
        try:
            library = importlib.import_module(str(self._frame))
        except ImportError:
            needs = "data frames of the pipeline (set_output) need"
            raise missing_package(needs, self._frame, str(self._frame)) from None
        if not isinstance(X, library.DataFrame):
            columns = _of_one_type(columns, self.reader.types_beside(X))
        names = self._table.names or ()
        arrays: list[np.ndarray] = []
        for block in self._blocks:
            if self._marks is not None:
                arrays += self._marks.of_columns(evaluator)
            elif isinstance(block, Table):
                arrays += [_typed(column, evaluator, columns) for column in block.columns]
            else:
                arrays += list(self._dense(block, evaluator, columns).T)
        if self._frame == "pandas":
            # By position, because columns may share a name.
            frame = library.DataFrame(dict(enumerate(arrays)), copy=False)
            frame.columns = list(names)
            if isinstance(X, library.DataFrame):
                frame.index = X.index
            return frame
        series = [
            library.Series(name, [None if value != value else value for value in x.tolist()])
            if x.dtype == object
            else library.Series(name, x)
            for name, x in zip(names, arrays, strict=True)
        ]
        return library.DataFrame(series)


def _terms(block: TextOperation, rows: CsrRows, column: RawColumn) -> Any:
    """Return the terms of texts as sparse rows."""
    at, values, starts = block.kernel.rows(block.texts(column))
    values = values.astype(block.kernel.operation.dtype, copy=False)
    narrow = np.int32 if len(values) <= MOST_INT32 else np.int64
    return rows.make(values, at.astype(narrow, copy=False), starts.astype(narrow, copy=False))


def _of_one_type(columns: Mapping[int, RawColumn], others: list[np.dtype]) -> Mapping[int, RawColumn]:
    """Convert numbers to their common dtype, as in an array of all columns.

    Parameters
    ----------
    beside
        Dtypes of numbers in unread columns.
    """
    arrays = {i: column.numbers("") for i, column in columns.items() if isinstance(column, Numbers)}
    dtypes = {*others, *(array.dtype for array in arrays.values())}
    if len(dtypes) < 2:
        return columns
    common = np.result_type(*dtypes)
    return {**columns, **{i: Numbers(array.astype(common, copy=False)) for i, array in arrays.items()}}


def _typed(column: Column, evaluator: Evaluator, columns: Mapping[int, RawColumn]) -> np.ndarray:
    """Return a data frame's column; without steps, it keeps its dtype of numbers."""
    values = _plain(evaluator.checked(column))
    raw = columns[column.source.index] if isinstance(column.source, Raw) and not column.steps else None
    return raw.numbers("") if isinstance(raw, Numbers) and values.dtype.kind == "f" else values


def _side_by_side(blocks: list[np.ndarray]) -> np.ndarray:
    return blocks[0] if len(blocks) == 1 else np.concatenate(blocks, axis=1)


def _plain(values: np.ndarray) -> np.ndarray:
    """Convert Python values to numbers, unless there is a text among them."""
    texts = values.dtype == object and any(isinstance(value, str) for value in values.flat)
    return values if values.dtype.kind == "f" or texts else values.astype(np.float64)
