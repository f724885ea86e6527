"""From operators over tables to operators over the columns that a kernel reads (`Network`), and what is fed to it.

Products of a table's columns swallow scalers, imputers and encoders (`fold_linear`); other readers of tables get nodes for
the steps in front of them. What a network made earlier in a pipeline (`Computed`) becomes part of this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hbtvm.graph import fold_linear
from hbtvm.graph.fold_text import vectorizer_of
from hbtvm.graph.lower import Feeds
from hbtvm.graph.network import Computed, Network, TableRows
from hbtvm.graph.step_nodes import rows_of
from hbtvm.graph.steps import Encode
from hbtvm.graph.table import AllColumns, Column, Made, Raw, Table, parts_of
from hbtvm.graph.text import Vectorize
from hbtvm.operators.base import Input, Node, rewrite
from hbtvm.operators.pointwise import apply
from hbtvm.operators.products import Contract, LinearSum
from hbtvm.wording import count


@dataclass(frozen=True, eq=False)
class _Rows(Node):
    """The kernel's rows while their number of columns is not known yet."""

    kind = "rows"

    @property
    def width(self) -> int:
        return 1 << 30

    def reference(self, *inputs: np.ndarray) -> np.ndarray:
        raise ValueError("rows have no values of their own")

    def on(self, *inputs: Node) -> Node:
        return self


@dataclass(frozen=True)
class Lowered:
    """A network over feeds, and what was done, in sentences."""

    feeds: Feeds
    anchor: Network
    told: tuple[str, ...]


def lower(output: Node, names: Sequence[str] | None, raw: Table | None = None) -> Lowered:
    """Return the network that reads feeds in place of tables.

    Parameters
    ----------
    output
        The scores, over `TableRows`.
    names
        Names of the input's columns, for errors.
    raw
        The input itself: where nothing else is read, there is a feed for each of its columns, in order.
    """
    lowering = _Lowering(Feeds(names))
    if raw is not None:
        for column in raw.columns:
            lowering.feeds.number(column, True, True)
    changed = lowering.run(output)
    feeds = lowering.feeds
    if not feeds.feeds:
        # Kernels read one column at least: a code that is 0 whatever the value.
        feeds.codes(Raw(0), (Encode((), "code"),))
    width = len(feeds.feeds)
    rows = Input(width)
    (changed,) = rewrite([changed], lambda node: rows if isinstance(node, _Rows) else node)
    return Lowered(feeds, Network(width, changed), tuple(lowering.told))


class _Lowering:
    def __init__(self, feeds: Feeds) -> None:
        self.feeds, self.rows = feeds, _Rows()
        self.told: list[str] = []
        self._operations: dict[int, Node] = {}

    def run(self, output: Node) -> Node:
        """A node with all tables replaced."""
        # Products first: what they swallow must not be computed as well.
        (swallowed,) = rewrite([output], self._product)
        return rewrite([swallowed], self._leaf)[0]

    def _product(self, node: Node) -> Node:
        if not isinstance(node, Contract) or not isinstance(node.x, TableRows):
            return node
        leaf = node.x
        if any(_is_made(part) for part in parts_of(leaf.table.columns)):
            return node
        folded = fold_linear.fold(
            leaf.table, node.weight, np.zeros(node.width), None, leaf.allow_nan, self.feeds
        )
        linear = folded.anchor
        self.told += [one for one in folded.told if one not in self.told]
        sizes = tuple(map(len, linear.tables))
        total: Node = LinearSum(
            self.rows,
            linear.feature,
            linear.shift,
            linear.weight,
            linear.missing,
            linear.code_feature,
            sizes,
            np.concatenate([np.zeros((0, node.width)), *linear.tables]),
            bool(linear.missing.any()),
        )
        return apply("add", total, linear.base_score) if linear.base_score.any() else total

    def _leaf(self, node: Node) -> Node:
        if not isinstance(node, TableRows):
            return node
        before = len(self.feeds.feeds)
        result = rows_of(
            node.table.columns, self.feeds, self.rows, self._made, node.allow_nan, node.allow_inf
        )
        hosted = sum(bool(feed.steps) and feed.encoder is None for feed in self.feeds.feeds[before:])
        if hosted:
            self.told.append(f"{count(hosted, 'column')} computed by numpy before the kernel")
        return result

    def _made(self, source: Made) -> tuple[Node, int] | None:
        if not isinstance(source.operation, Computed):
            return None
        key = id(source.operation)
        if key not in self._operations:
            self._operations[key] = self.run(source.operation.output)
        return self._operations[key], source.index


def _is_made(columns: Sequence[Column]) -> bool:
    """Whether an operation other than a vectorizer makes some of the columns."""
    if isinstance(columns, AllColumns):
        return not isinstance(columns.operation, Vectorize)
    return any(isinstance(one.source, Made) and vectorizer_of(one.source) is None for one in columns)
