"""Inline networks of a pipeline's earlier steps in place of their columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hbtvm.graph.columns.row_operations import Normalize
from hbtvm.graph.columns.step_groups import kind_of
from hbtvm.graph.columns.table import Column, Made, Table
from hbtvm.graph.networks.fold_text import other_columns
from hbtvm.graph.networks.network import Computed, TableRows, Trees
from hbtvm.graph.networks.step_nodes import chains, has_node
from hbtvm.operators.base import Node, in_order, rewrite
from hbtvm.operators.pointwise import apply
from hbtvm.operators.shapes import concat, reduce, select


def inlined(outputs: Sequence[Node]) -> list[Node]:
    """Return networks whose tables have no column of a network, except for those that trees read.

    (Trees move the steps in front of them into their thresholds, column by column.)
    """
    kept = {id(node.x) for node in in_order(*outputs) if isinstance(node, Trees)}
    return _Inlining(kept).run(outputs)


def made_by_nodes(column: Column) -> bool:
    """Return whether operators compute a column, and nodes its steps."""
    operation = column.source.operation if isinstance(column.source, Made) else None
    return isinstance(operation, Computed | Normalize) and all(map(has_node, column.steps))


class _Inlining:
    def __init__(self, kept: set[int]) -> None:
        self._kept = kept
        self._operations: dict[int, Node] = {}
        self._tables: dict[Any, tuple[TableRows, Node]] = {}

    def run(self, outputs: Sequence[Node]) -> list[Node]:
        return rewrite(outputs, self._change)

    def _change(self, node: Node) -> Node:
        if not isinstance(node, TableRows) or not any(map(made_by_nodes, other_columns(node.table))):
            return node
        if id(node) in self._kept and not _is_plain(node.table):
            return node
        key = id(node.table), node.allow_nan, node.allow_inf
        if key not in self._tables:
            # Keep the leaf, so that its table's id is not reused.
            self._tables[key] = node, self._columns(node)
        return self._tables[key][1]

    def _columns(self, leaf: TableRows) -> Node:
        groups: dict[Any, list[int]] = {}
        for i, column in enumerate(leaf.table.columns):
            key: Any = None
            if made_by_nodes(column):
                assert isinstance(column.source, Made)
                key = id(column.source.operation), *map(kind_of, column.steps)
            groups.setdefault(key, []).append(i)
        parts: list[Node] = []
        for key, group in groups.items():
            columns = [leaf.table.columns[i] for i in group]
            if key is None:
                parts.append(TableRows(Table(tuple(columns)), leaf.allow_nan, leaf.allow_inf))
            else:
                parts.append(self._operators(columns))
        order = np.argsort(np.concatenate([np.array(group) for group in groups.values()]), kind="stable")
        return select(concat(parts), order)

    def _operators(self, columns: Sequence[Column]) -> Node:
        sources = [column.source for column in columns if isinstance(column.source, Made)]
        operation = sources[0].operation
        if id(operation) not in self._operations:
            assert isinstance(operation, Computed | Normalize)
            output = operation.output if isinstance(operation, Computed) else normalized(operation)
            self._operations[id(operation)] = self.run([output])[0]
        pairs = zip(sources, columns, strict=True)
        return chains(
            self._operations[id(operation)], [(source.index, column.steps) for source, column in pairs]
        )


def _is_plain(table: Table) -> bool:
    """Return whether networks compute all columns, without further steps."""
    return all(
        isinstance(column.source, Made) and isinstance(column.source.operation, Computed) and not column.steps
        for column in table.columns
    )


def normalized(operation: Normalize) -> Node:
    """Return an operation's rows divided by their norms, over the operation's table."""
    rows = TableRows(operation.inputs)
    size = apply("square" if operation.norm == "l2" else "absolute", rows)
    norm = reduce("max" if operation.norm == "max" else "sum", size)
    if operation.norm == "l2":
        norm = apply("sqrt", norm)
    # Norms that scikit-learn takes for zero change nothing; see `Normalize.reference`.
    least = np.finfo(np.float64).smallest_subnormal if operation.sparse else 10 * np.finfo(np.float64).eps
    small = apply("less", norm, float(least))
    return apply("divide", rows, apply("where", small, 1.0, norm))
