"""`FeedPlan`: the input columns and readers of a pipeline's feeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hbtvm.graph.columns.feeds import Feed
from hbtvm.graph.columns.steps import Encode, Fill, IsMissing, Step
from hbtvm.graph.columns.table import Made, Raw, RowOperation, raws_of
from hbtvm.runtime.codes.coder import Coder, folds
from hbtvm.runtime.feeds.counters import counts
from hbtvm.runtime.feeds.text import vectorizer


class FeedPlan:
    """Feeds by kind.

    `feeds`: the columns of a pipeline's matrix.
    `numbers`: the feeds that are unchanged numbers.
    `coders`: coders by feed.
    `hosts`: the feeds that numpy computes.
    `texts`: the feeds computed from texts.
    `counters`: the feeds that `hbtvm.runtime.feeds.counters.CounterFeeds` computes.
    `guarded`: the numbers and host feeds that refuse some values.
    `raw_of`: the input's column of each feed that is a number or a code, in order.
    `host_raws`, `text_raws`, `counter_raws`, `raws`: the input's columns that host feeds, feeds of texts,
        counters, and any feeds read.
    `nulls`: by input column, the meaning of a container's missing value: None if the steps know it, else NaN.
        (Arrow, polars and dicts have one missing value; the training frame may have had both.)
    """

    def __init__(self, feeds: Sequence[Feed]) -> None:
        counted: dict[RowOperation, bool] = {}
        kinds = [_kind(feed, counted) for feed in feeds]
        self.numbers = [j for j, kind in enumerate(kinds) if kind == "number"]
        self.hosts = [j for j, kind in enumerate(kinds) if kind == "host"]
        self.texts = [j for j, kind in enumerate(kinds) if kind == "text"]
        self.counters = [j for j, kind in enumerate(kinds) if kind == "counter"]
        self.coders = {j: Coder(feeds[j].steps) for j, kind in enumerate(kinds) if kind == "codes"}
        self.guarded = [
            j for j in (*self.numbers, *self.hosts) if not (feeds[j].allow_nan and feeds[j].allow_inf)
        ]
        self.raw_of = {
            j: feed.source.index
            for j, feed in enumerate(feeds)
            if kinds[j] in ("number", "codes") and isinstance(feed.source, Raw)
        }
        self.host_raws, self.text_raws, self.counter_raws = (
            sorted({raw for source in {feeds[j].source for j in places} for raw in raws_of(source)})
            for places in (self.hosts, self.texts, self.counters)
        )
        self.raws = sorted({*self.raw_of.values(), *self.host_raws, *self.text_raws, *self.counter_raws})
        # Texts have no missing values; errors show the original value.
        knows = {*self.text_raws} | {raw for feed in feeds for raw in _know_none(feed.source, feed.steps)}
        self.nulls: dict[int, Any] = {raw: None if raw in knows else np.nan for raw in self.raws}


def _kind(feed: Feed, counted: dict[RowOperation, bool]) -> str:
    """Return a feed's kind; `counted` keeps which operations `CounterFeeds` computes."""
    if isinstance(feed.source, Raw):
        if not feed.steps:
            return "number"
        if folds(feed.steps):
            return "codes"
    if vectorizer(feed.source) is not None:
        return "text"
    if isinstance(feed.source, Made) and not feed.steps and feed.allow_nan and feed.allow_inf:
        operation = feed.source.operation
        if operation not in counted:
            counted[operation] = counts(operation)
        return "counter" if counted[operation] else "host"
    return "host"


def _know_none(source: Raw | Made, steps: Sequence[Step]) -> set[int]:
    """Return the input's columns whose steps know None."""
    if isinstance(source, Made):
        columns = source.operation.inputs.columns
        return {raw for column in columns for raw in _know_none(column.source, column.steps)}
    return {source.index} if any(map(_knows_none, steps)) else set()


def _knows_none(step: Step) -> bool:
    if isinstance(step, Encode):
        return step.none_code >= 0
    return isinstance(step, Fill | IsMissing) and step.missing is None
