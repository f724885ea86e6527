"""The columns of a file that a pipeline reads, and their types."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hbtvm.graph.columns.dates import Dates
from hbtvm.graph.columns.feeds import Feed
from hbtvm.graph.columns.hashes import HashText
from hbtvm.graph.columns.steps import Encode, Fill, IsMissing, Step
from hbtvm.graph.columns.table import Made, Raw
from hbtvm.graph.graph import InputSpec

if TYPE_CHECKING:
    from hbtvm.runtime.feeds.reader import FeedReader


@dataclass(frozen=True)
class Columns:
    """The columns that are read of a file."""

    # The columns as a bare model's input: texts are categories by value; unread columns have none. If
    # columns are matched by name, only those that are read.
    spec: InputSpec
    of: tuple[int, ...]  # their indices among the pipeline's columns
    width: int  # number of the pipeline's columns
    empty: Mapping[int, Any]  # by column of `spec`, the meaning of an empty field among texts

    def widened(self, block: Any) -> Any:
        """Return rows of the read columns as rows of all columns, for models without column names."""
        if self.spec.rows_are_values:
            return block[:, 0]
        if len(self.of) == self.width:
            return block
        empty = None if block.dtype == object else np.nan
        wide = np.full((len(block), self.width), empty, block.dtype)
        wide[:, list(self.of)] = block
        return wide


def columns_of(reader: FeedReader) -> Columns:
    """Return the columns that a pipeline reads of a file.

    `reader`: a model's `hbtvm.runtime.model.Model.pipeline`.
    """
    spec, plan = reader.spec, reader.plan
    words: dict[int, list[str]] = {}
    for raw, step in steps_of(reader.feeds):
        texts = [value for value in _values(step) if isinstance(value, str)]
        if texts:
            words.setdefault(raw, []).extend(texts)
    # Fields of texts and of dates are read unchanged, empty ones included.
    words |= {raw: [""] for raw in plan.text_raws}
    by_name = spec.by_name and spec.feature_names is not None
    of = tuple(plan.raws) if by_name else tuple(range(spec.n_features))
    categories: dict[int, tuple[Any, ...]] = {}
    for at, raw in enumerate(of):
        if raw in words:
            categories[at] = tuple(dict.fromkeys(words[raw]))
        elif raw not in plan.nulls:
            categories[at] = ()
    names = None if spec.feature_names is None else tuple(spec.feature_names[raw] for raw in of)
    known = replace(
        spec, n_features=len(of), feature_names=names, categories=categories, numbers_are_categories=True
    )
    empty = {at: plan.nulls[raw] for at, raw in enumerate(of) if raw in plan.nulls}
    empty |= {at: "" for at, raw in enumerate(of) if raw in plan.text_raws}
    return Columns(known, of, spec.n_features, empty)


def known_values(spec: InputSpec, reader: FeedReader | None) -> dict[int, tuple[Any, ...]]:
    """Return the categories of each column that a model reads, by the column's index.

    `spec`, `reader`: the package's input, and its pipeline's reader; None for a bare model.
    Columns of numbers have none; columns of texts have ``("",)``.
    """
    if spec.rows_are_values:
        return {0: ("",)}
    if reader is None:
        categories = spec.categories or {}
        return {at: tuple(categories.get(at) or ()) for at in range(spec.n_features)}
    columns = columns_of(reader)
    return {raw: tuple(columns.spec.categories.get(at) or ()) for at, raw in enumerate(columns.of)}


def steps_of(feeds: Sequence[Feed]) -> Iterator[tuple[int, Step]]:
    """Yield the steps on values of the input's columns, each with its column."""
    for feed in feeds:
        yield from _steps_on(feed.source, feed.steps)


def _steps_on(source: Raw | Made, steps: Sequence[Step]) -> Iterator[tuple[int, Step]]:
    if isinstance(source, Raw):
        for step in steps:
            yield source.index, step
    else:
        for column in source.operation.inputs.columns:
            yield from _steps_on(column.source, column.steps)


def _values(step: Step) -> tuple[Any, ...]:
    if isinstance(step, Dates | HashText):
        return ("",)
    if isinstance(step, Encode):
        return step.categories
    if isinstance(step, Fill):
        return step.value, step.missing
    return (step.missing,) if isinstance(step, IsMissing) else ()
