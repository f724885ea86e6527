"""Affine networks over a table's columns, as weights."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hbtvm.graph.columns.table import Column, Raw, Table
from hbtvm.graph.networks import fold_linear
from hbtvm.graph.networks.network import TableRows
from hbtvm.operators.base import Constant, Node
from hbtvm.operators.pointwise import Elementwise
from hbtvm.operators.products import Contract
from hbtvm.operators.shapes import Select


@dataclass(frozen=True)
class Affine:
    """``columns @ weight + offset``."""

    weight: np.ndarray  # float64, shape (columns, O)
    offset: np.ndarray  # float64, shape (O,)


def affine_of(node: Node, table: Table) -> Affine | None:
    """Return a node as an affine function of a table's columns; None if it is not, or not known to be.

    `node`: over tables whose columns are columns of `table`, maybe with further steps.
    """
    if isinstance(node, TableRows):
        return _columns(node, table, np.eye(node.width))
    if isinstance(node, Constant):
        return Affine(np.zeros((len(table), node.width)), node.values)
    if isinstance(node, Contract) and isinstance(node.x, TableRows):
        return _columns(node.x, table, node.weight)
    if isinstance(node, Contract | Select):
        inner = affine_of(node.x, table)
        if inner is None:
            return None
        if isinstance(node, Select):
            return Affine(inner.weight[:, node.indices], inner.offset[node.indices])
        return Affine(inner.weight @ node.weight, inner.offset @ node.weight)
    if isinstance(node, Elementwise):
        return _elementwise(node, table)
    return None


def _elementwise(node: Elementwise, table: Table) -> Affine | None:
    parts = [part for part in (affine_of(x, table) for x in node.operands) if part is not None]
    if len(parts) < len(node.operands):
        return None
    if node.function == "negative":
        return Affine(-parts[0].weight, -parts[0].offset)
    if len(parts) != 2:
        return None
    (first, second), fixed = parts, [isinstance(x, Constant) for x in node.operands]
    match node.function:
        case "add":
            return Affine(first.weight + second.weight, first.offset + second.offset)
        case "subtract":
            return Affine(first.weight - second.weight, first.offset - second.offset)
        case "multiply" if any(fixed):
            factor, other = (first, second) if fixed[0] else (second, first)
            return Affine(other.weight * factor.offset, other.offset * factor.offset)
        case "divide" if fixed[1]:
            return Affine(first.weight / second.offset, first.offset / second.offset)
    return None


def _columns(rows: TableRows, table: Table, weight: np.ndarray) -> Affine | None:
    """Return a product of columns of `table` that have arithmetic as further steps."""
    places = {_key(column, len(column.steps)): i for i, column in enumerate(table.columns)}
    columns = []
    for column in rows.table.columns:
        lengths = range(len(column.steps), -1, -1)
        known = next((n for n in lengths if _key(column, n) in places), None)
        if known is None:
            return None
        columns.append(Column(Raw(places[_key(column, known)]), column.steps[known:]))
    if not all(fold_linear.absorbs(column) and column.encoder is None for column in columns):
        return None
    folded = fold_linear.fold(Table(tuple(columns)), weight, np.zeros(weight.shape[1]))
    anchor, result = folded.anchor, np.zeros((len(table), weight.shape[1]))
    offset, sums = anchor.base_score.copy(), anchor.sums
    for k, feature in enumerate(sums.feature.tolist()):
        source = folded.feeds.feeds[feature].source
        assert isinstance(source, Raw)
        result[source.index] += sums.weight[k]
        offset -= sums.shift[k] * sums.weight[k]
    return Affine(result, offset)


def _key(column: Column, steps: int) -> tuple[object, ...]:
    """Return a key that identifies a column after its first steps."""
    return (column.source, *map(id, column.steps[:steps]))
