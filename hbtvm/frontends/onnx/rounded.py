"""Columns of a table as nodes that round to float32 where ONNX Runtime does, for what compares them."""

from __future__ import annotations

from typing import Any

import numpy as np

from hbtvm.frontends.onnx.values import Rows
from hbtvm.graph.network import TableRows
from hbtvm.graph.step_groups import kind_of
from hbtvm.graph.step_nodes import has_node, step_node
from hbtvm.graph.steps import Arithmetic, Cast, Encode, Fill, Function, IsMissing, Step
from hbtvm.graph.table import Column, Table
from hbtvm.operators.base import Node
from hbtvm.operators.pointwise import apply
from hbtvm.operators.shapes import concat, select


def rounded(x: Rows) -> Node:
    """The columns of rows as a node.

    Parameters
    ----------
    x
        Numbers; of a table, arithmetic on float32 is rounded after each operation.
    """
    x = x.numbers()
    if not isinstance(x.content, Table) or x.dtype != "float32":
        return x.node()
    first = [_first(column) for column in x.content.columns]
    pairs = list(zip(x.content.columns, first, strict=True))
    if all(at == len(column.steps) for column, at in pairs):
        return x.node()
    groups: dict[Any, list[int]] = {}
    for i, (column, at) in enumerate(pairs):
        groups.setdefault(tuple(map(kind_of, column.steps[at:])), []).append(i)
    parts = [_group([pairs[i] for i in group]) for group in groups.values()]
    order = np.argsort(np.concatenate([np.array(group) for group in groups.values()]), kind="stable")
    return select(concat(parts), order)


def weighed(x: Rows) -> Node:
    """The columns of rows as a node, for products with weights.

    Products swallow a table's scalers, imputers and encoders; other steps become nodes. NaN and infinities are
    refused where nothing fills them.
    """
    x = x.numbers()
    if not isinstance(x.content, Table) or all(_swallowed(column) for column in x.content.columns):
        return x.node(False)
    return rounded(x)


def _swallowed(column: Column) -> bool:
    plain = all(isinstance(step, Arithmetic | Cast | Fill | IsMissing) for step in column.steps)
    return plain or column.encoder is not None or not all(map(has_node, column.steps))


def _first(column: Column) -> int:
    """The first step that may round, and needs a node of its own."""
    if any(isinstance(step, Encode) for step in column.steps) or not all(map(has_node, column.steps)):
        # What numpy computes, or looks up, it rounds as well.
        return len(column.steps)
    return next((i for i, step in enumerate(column.steps) if not isinstance(step, Cast)), len(column.steps))


def _group(columns: list[tuple[Column, int]]) -> Node:
    """Columns with the same kinds of steps."""
    before = tuple(Column(one.source, one.steps[:at], one.allow_nan, one.allow_inf) for one, at in columns)
    node: Node = TableRows(Table(before), True, True)
    rest: list[tuple[Step, ...]] = [one.steps[at:] for one, at in columns]
    for steps in zip(*rest, strict=True):
        node = step_node(steps, node)
        if isinstance(steps[0], Arithmetic | Function):
            node = apply("round_float32", node)
    return node
