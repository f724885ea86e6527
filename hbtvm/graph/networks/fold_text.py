"""Fold vectorizers into linear models: the weights of a text's terms are summed without a matrix.

For other models, only the columns of terms that they read are computed (`narrowed`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np

from hbtvm.graph.columns.feeds import Feed
from hbtvm.graph.columns.kernel_input import Feeds
from hbtvm.graph.columns.steps import Arithmetic, Step
from hbtvm.graph.columns.table import AllColumns, Column, Made, RowOperation, Table, parts_of
from hbtvm.graph.columns.text import Stage, Vectorize
from hbtvm.words.quantities import count


def vectorizer_of(source: object) -> Vectorize | None:
    """Return the operation of a column of terms; None for other columns."""
    operation = source.operation if isinstance(source, Made) else None
    return operation if isinstance(operation, Vectorize) and operation.weight is None else None


def other_columns(table: Table) -> Iterator[Column]:
    """Yield a table's columns, without those of whole operations on texts."""
    for part in parts_of(table.columns):
        if not (isinstance(part, AllColumns) and isinstance(part.operation, Vectorize)):
            yield from part


def text_rewrites(table: Table) -> tuple[str, ...]:
    """Return sentences about the texts of a table that is a pipeline's output."""
    operations = [block for block in blocks_of(table) if isinstance(block, Vectorize)]
    terms = sum(operation.columns for operation in operations)
    return (f"{count(terms, 'term')} of texts: counted by code of their own",) if operations else ()


class TextSums:
    """Weights of terms, by operation.

    `outputs`: number of sums of a row, O.
    """

    def __init__(self, outputs: int) -> None:
        self._outputs = outputs
        self._known: dict[Vectorize, np.ndarray] = {}

    def all(self, operation: Vectorize, weight: np.ndarray) -> None:
        """Add the weights of all columns of an operation, shape (columns, O)."""
        self._weight(operation)[:] += weight

    def column(self, operation: Vectorize, index: int, weight: np.ndarray) -> None:
        """Add the weights of a column of an operation, shape (O,)."""
        self._weight(operation)[index] += weight

    def _weight(self, operation: Vectorize) -> np.ndarray:
        return self._known.setdefault(operation, np.zeros((operation.columns, self._outputs)))

    def feeds(self, feeds: Feeds) -> Iterator[tuple[int, int]]:
        """Feed the sums with weights; yield each feed, and which of the O sums it adds to."""
        for operation, weight in self._known.items():
            # Rows without columns can't be counted, so at least one sum is computed.
            used = np.flatnonzero(weight.any(axis=0)).tolist() or [0]
            sums = operation.weighted(weight[:, used])
            for place, output in enumerate(used):
                yield feeds.computed(sums, place), output

    def rewrites(self) -> list[str]:
        """Return the rewrites in sentences."""
        terms = sum(operation.columns for operation in self._known)
        if not self._known:
            return []
        return [f"{count(terms, 'term')} of texts: counted and summed up with weights, without a matrix"]


def narrowed(feeds: Sequence[Feed]) -> tuple[Feed, ...]:
    """Return the feeds, with operations that count only the terms that are fed."""
    columns: dict[RowOperation, list[int]] = {}
    for feed in feeds:
        operation = vectorizer_of(feed.source)
        if operation is not None and isinstance(feed.source, Made):
            columns.setdefault(operation, []).append(feed.source.index)
    narrow: dict[RowOperation, tuple[Vectorize, dict[int, int]]] = {}
    for whole, used in columns.items():
        assert isinstance(whole, Vectorize)
        kept = sorted(set(used))
        place = {index: at for at, index in enumerate(kept)}
        narrow[whole] = (whole.select(kept) if len(kept) < whole.columns else whole, place)

    def change(feed: Feed) -> Feed:
        source = feed.source
        if not isinstance(source, Made) or source.operation not in narrow:
            return feed
        chosen, place = narrow[source.operation]
        return feed if chosen is source.operation else replace(feed, source=Made(chosen, place[source.index]))

    return tuple(map(change, feeds))


def block_of(table: Table) -> Vectorize | None:
    """Return the operation of a whole table of terms, maybe scaled or selected; None for other tables."""
    columns = table.columns
    if isinstance(columns, AllColumns):
        return columns.operation if isinstance(columns.operation, Vectorize) else None
    operation = vectorizer_of(columns[0].source) if len(columns) else None
    if operation is None:
        return None
    index, scale = [], np.ones(len(columns))
    for at, column in enumerate(columns):
        factor = _factor(column.steps)
        if vectorizer_of(column.source) is not operation or factor is None:
            return None
        assert isinstance(column.source, Made)
        index.append(column.source.index)
        scale[at] = factor
    if len(set(index)) < len(index):
        return None
    chosen = operation if index == list(range(operation.columns)) else operation.select(index)
    return chosen if np.all(scale == 1.0) else chosen.then(Stage("scale", scale))


def _factor(steps: Sequence[Step]) -> float | None:
    """Return the factor of steps that multiply; None for other steps."""
    factor = 1.0
    for step in steps:
        if not isinstance(step, Arithmetic) or step.operation not in ("multiply", "divide"):
            return None
        factor = factor * step.constant if step.operation == "multiply" else factor / step.constant
    return factor


def blocks_of(table: Table) -> list[Vectorize | Table]:
    """Cut a table into operations on texts, whose columns are side by side, and tables of other columns."""
    blocks: list[Vectorize | Table] = []
    rest: list[Column] = []
    for part in parts_of(table.columns):
        whole = block_of(Table(part)) if isinstance(part, AllColumns) else None
        runs = [part] if whole is not None else _runs(part)
        for run in runs:
            block = whole or block_of(Table(run))
            if block is None:
                rest += run
                continue
            if rest:
                blocks.append(Table(tuple(rest)))
                rest = []
            blocks.append(block)
    if rest:
        blocks.append(Table(tuple(rest)))
    return blocks


def _runs(columns: Sequence[Column]) -> list[Sequence[Column]]:
    """Group neighbouring columns of the same operation."""
    groups = groupby(columns, lambda column: id(vectorizer_of(column.source)))
    return [tuple(group) for _, group in groups]
