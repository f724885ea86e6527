"""The columns of a pipeline's matrix that are computed from texts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hbtvm.graph.columns.evaluate import of_numbers
from hbtvm.graph.columns.feeds import Feed
from hbtvm.graph.columns.steps import Step
from hbtvm.graph.columns.table import Made, Raw, RowOperation
from hbtvm.graph.columns.text import Vectorize
from hbtvm.runtime.rows.raw import RawColumn
from hbtvm.runtime.text.kernel import TextKernel
from hbtvm.runtime.text.library import TextLibrary
from hbtvm.runtime.text.objects import ObjectRows
from hbtvm.runtime.text.reader import TextReader
from hbtvm.runtime.text.texts import Texts


def vectorizer(source: Raw | Made) -> Vectorize | None:
    """Return the operation that computes a column from texts; None if there is none."""
    operation = source.operation if isinstance(source, Made) else None
    return operation if isinstance(operation, Vectorize) else None


def text_column(operation: Vectorize) -> int:
    """Return the input's column of an operation's texts."""
    source = operation.inputs.columns[0].source
    assert isinstance(source, Raw)
    return source.index


class TextOperation:
    """An operation on texts, with its reader and its kernel.

    `where`: the column of texts, for errors.
    `raw`: the column of texts.
    """

    def __init__(self, operation: Vectorize, library: TextLibrary, where: str) -> None:
        self.raw = text_column(operation)
        self.kernel = TextKernel(library, operation)
        self.reader = TextReader(operation.analyzer, where, library)
        self._single = operation.analyzer.kind != "pairs"

    def of_value(self, value: Any) -> np.ndarray:
        """Return the operation's columns for a value, shape (1, width)."""
        if type(value) is str and self._single:
            return self.kernel.of_text(value)
        if self._single:
            return self.kernel.of_text(self.reader.decoded(value))
        return self.kernel.sums(self.reader.of_values([value]))

    def row(self, value: Any) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the columns and values of a row's entries; None if `texts` has to read the row."""
        if not self._single:
            rows = self.reader.of_values([value])
            return self.kernel.object_row(rows) if isinstance(rows, ObjectRows) else None
        return self.kernel.row(value) if type(value) is str else None

    def texts(self, column: RawColumn) -> Texts | ObjectRows:
        """Return a column's texts or features."""
        return column.texts(self.reader)

    def sums(self, column: RawColumn) -> np.ndarray:
        """Return the operation's columns, shape (n, width)."""
        return self.kernel.sums(self.texts(column))


class TextFeeds:
    """Computes the feeds of texts.

    `feeds`: all columns of the matrix.
    `places`: positions of those computed from texts.
    `names`: names of the input's columns, for errors.
    `raws`: the input's column of texts of each operation.
    """

    def __init__(
        self, feeds: Sequence[Feed], places: Sequence[int], library: TextLibrary, names: Mapping[int, str]
    ) -> None:
        self._places = places
        self._operations: list[TextOperation] = []
        at: dict[RowOperation, int] = {}
        # By position: operation, the operation's column, and the steps on it.
        self._feeds: list[tuple[int, int, tuple[Step, ...]]] = []
        for j in places:
            source = feeds[j].source
            operation = vectorizer(source)
            assert operation is not None and isinstance(source, Made)
            if operation not in at:
                at[operation] = len(at)
                where = names.get(text_column(operation), "the rows")
                self._operations.append(TextOperation(operation, library, where))
            self._feeds.append((at[operation], source.index, feeds[j].steps))
        self.raws = [operation.raw for operation in self._operations]
        widths = [operation.kernel.width for operation in self._operations]
        whole = len(widths) == 1 and [(i, steps) for _, i, steps in self._feeds] == [
            (i, ()) for i in range(widths[0])
        ]
        # The only operation, if its columns are read unchanged.
        self._only = self._operations[0] if whole and len(places) == len(feeds) else None

    def whole(self, value: Any) -> np.ndarray | None:
        """Return the whole matrix of a row of one value; None unless it is one operation's columns."""
        return None if self._only is None else self._only.of_value(value)

    def matrix(self, columns: Mapping[int, RawColumn]) -> np.ndarray | None:
        """Return the whole matrix, shape (n, feeds); None as in `whole`."""
        return None if self._only is None else self._only.sums(columns[self._only.raw])

    def row(self, values: Sequence[Any]) -> list[float]:
        """Return the feeds of a row, whose values are in the order of `raws`."""
        sums = [
            operation.of_value(value)[0] for operation, value in zip(self._operations, values, strict=True)
        ]
        return [float(of_numbers(steps, sums[at][i : i + 1])[0]) for at, i, steps in self._feeds]

    def compute(self, columns: Mapping[int, RawColumn]) -> dict[int, np.ndarray]:
        """Return the feeds by their positions in the matrix, shape (n,) each."""
        sums = [operation.sums(columns[operation.raw]) for operation in self._operations]
        return {
            j: of_numbers(steps, sums[at][:, i])
            for j, (at, i, steps) in zip(self._places, self._feeds, strict=True)
        }
