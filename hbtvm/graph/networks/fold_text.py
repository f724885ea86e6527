"""Linear models swallow vectorizers: what texts add to the scores is summed up term by term, without a
matrix.

Other models read the columns of some terms: those alone are computed (`narrowed`).
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
    """The operation that makes a column, if its columns are those of terms."""
    operation = source.operation if isinstance(source, Made) else None
    return operation if isinstance(operation, Vectorize) and operation.weight is None else None


def other_columns(table: Table) -> Iterator[Column]:
    """A table's columns, but for those of whole operations on texts."""
    for part in parts_of(table.columns):
        if not (isinstance(part, AllColumns) and isinstance(part.operation, Vectorize)):
            yield from part


def told(table: Table) -> tuple[str, ...]:
    """What is done to the texts of a table that is a pipeline's output, in sentences."""
    operations = [one for one in blocks_of(table) if isinstance(one, Vectorize)]
    terms = sum(one.columns for one in operations)
    return (f"{count(terms, 'term')} of texts: counted by code of their own",) if operations else ()


class TextSums:
    """Weights of terms, by operation.

    `outputs`: sums of a row, O.
    """

    def __init__(self, outputs: int) -> None:
        self._outputs = outputs
        self._known: dict[RowOperation, tuple[Vectorize, np.ndarray]] = {}

    def all(self, operation: Vectorize, weight: np.ndarray) -> None:
        """Add the weights of all columns of an operation, shape (columns, O)."""
        known = self._known.setdefault(operation, (operation, np.zeros((operation.columns, self._outputs))))
        known[1][:] += weight

    def column(self, operation: Vectorize, index: int, weight: np.ndarray) -> None:
        """Add the weights of one of them, shape (O,)."""
        known = self._known.setdefault(operation, (operation, np.zeros((operation.columns, self._outputs))))
        known[1][index] += weight

    def feeds(self, feeds: Feeds) -> Iterator[tuple[int, int]]:
        """Put down the sums that may not be 0; for each its feed, and which of the O sums it adds to."""
        for operation, weight in self._known.values():
            # Rows of nothing can't be counted, so that one sum is computed in any case.
            used = np.flatnonzero(weight.any(axis=0)).tolist() or [0]
            sums = operation.weighted(weight[:, used])
            for place, output in enumerate(used):
                yield feeds.made(sums, place), output

    def told(self) -> list[str]:
        """What was done, in sentences."""
        terms = sum(operation.columns for operation, _ in self._known.values())
        if not self._known:
            return []
        return [f"{count(terms, 'term')} of texts: counted and summed up with weights, without a matrix"]


def narrowed(feeds: Sequence[Feed]) -> tuple[Feed, ...]:
    """Return feeds of which those of terms are made by operations that make no other terms."""
    columns: dict[RowOperation, list[int]] = {}
    for feed in feeds:
        operation = vectorizer_of(feed.source)
        if operation is not None and isinstance(feed.source, Made):
            columns.setdefault(operation, []).append(feed.source.index)
    made: dict[RowOperation, tuple[Vectorize, dict[int, int]]] = {}
    for whole, used in columns.items():
        assert isinstance(whole, Vectorize)
        kept = sorted(set(used))
        place = {index: at for at, index in enumerate(kept)}
        made[whole] = (whole.select(kept) if len(kept) < whole.columns else whole, place)

    def change(feed: Feed) -> Feed:
        source = feed.source
        if not isinstance(source, Made) or source.operation not in made:
            return feed
        chosen, place = made[source.operation]
        return feed if chosen is source.operation else replace(feed, source=Made(chosen, place[source.index]))

    return tuple(map(change, feeds))


def block_of(table: Table) -> Vectorize | None:
    """The operation that makes a whole table of terms, scaled or selected ones too, if there is one."""
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
    """What steps multiply by; None if they do something else."""
    factor = 1.0
    for step in steps:
        if not isinstance(step, Arithmetic) or step.operation not in ("multiply", "divide"):
            return None
        factor = factor * step.constant if step.operation == "multiply" else factor / step.constant
    return factor


def blocks_of(table: Table) -> list[Vectorize | Table]:
    """Cut a table into operations on texts, whose columns are side by side, and tables of other columns."""
    found: list[Vectorize | Table] = []
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
                found.append(Table(tuple(rest)))
                rest = []
            found.append(block)
    if rest:
        found.append(Table(tuple(rest)))
    return found


def _runs(columns: Sequence[Column]) -> list[Sequence[Column]]:
    """Columns next to each other that the same operation makes."""
    groups = groupby(columns, lambda column: id(vectorizer_of(column.source)))
    return [tuple(group) for _, group in groups]
