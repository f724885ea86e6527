"""Merge nodes that compute the same values, and join nodes that differ in weights into a wide node."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from hbtvm.graph.columns.table import AllColumns, parts_of
from hbtvm.graph.networks import join_trees
from hbtvm.graph.networks.network import TableRows, Trees
from hbtvm.graph.trees.ensemble import TreeEnsemble
from hbtvm.operators import together
from hbtvm.operators.base import Node, rewrite
from hbtvm.operators.pointwise import apply
from hbtvm.operators.products import Contract


def side_by_side(parts: Sequence[Node]) -> Node:
    """Return the columns of all nodes, from as few operators as possible."""
    return together.side_by_side(unified(parts), _trees)


def mean(parts: Sequence[Node], weights: np.ndarray | None = None) -> Node:
    """Return the mean of nodes of the same width, column by column.

    `weights`: float64, shape (nodes,), of a weighted mean; it is divided by their sum, as in numpy.
    """
    parts = unified(parts)
    if len(parts) == 1:
        return parts[0]
    if weights is not None:
        weighted = [apply("multiply", x, float(weight)) for x, weight in zip(parts, weights, strict=True)]
        return apply("divide", together.grouped_sum(weighted, _trees), float(weights.sum()))
    if all(isinstance(part, Trees) for part in parts):
        forest = join_trees.mean(parts)  # type: ignore[arg-type]
        if forest is not None:
            return forest
    products = [part for part in parts if isinstance(part, Contract) and part.x is parts[0].inputs[0]]
    if len(products) == len(parts):
        weight = np.mean([product.weight for product in products], axis=0)
        return Contract(products[0].x, weight)
    return apply("divide", together.grouped_sum(parts, _trees), float(len(parts)))


def unified(outputs: Sequence[Node]) -> list[Node]:
    """Return the networks with a single node for each distinct computation."""
    known: dict[Any, Node] = {}
    return rewrite(outputs, lambda node: known.setdefault(_key(node), node))


def _trees(parts: Sequence[Node]) -> Node | None:
    if not all(isinstance(part, Trees) for part in parts):
        return None
    return join_trees.side_by_side(parts)  # type: ignore[arg-type]


def _key(node: Node) -> Any:
    """Return a key that is equal for nodes that compute the same."""
    if isinstance(node, TableRows):
        columns: list[Any] = []
        for part in parts_of(node.table.columns):
            # The operation stands for all of its columns: there may be a million.
            whole = isinstance(part, AllColumns)
            columns += [id(part.operation)] if whole else map(join_trees.key, part)  # type: ignore[attr-defined]
        return (node.kind, tuple(columns), node.allow_nan, node.allow_inf)
    inputs = tuple(map(id, node.inputs))
    if isinstance(node, Trees):
        return (node.kind, inputs, _ensemble_key(node.ensemble))
    if not node.inputs and not node.tables():
        return id(node)
    tables = tuple((name, t.shape, t.dtype.str, t.tobytes()) for name, t in node.tables().items())
    return (node.kind, node.width, inputs, json.dumps(node.attributes(), sort_keys=True), tables)


def _ensemble_key(ensemble: TreeEnsemble) -> tuple[Any, ...]:
    parts: list[Any] = []
    for field in fields(ensemble):
        value = getattr(ensemble, field.name)
        if isinstance(value, np.ndarray):
            parts.append(value.tobytes())
        elif field.name == "category_sets":
            parts.append(tuple((known.member.tobytes(), known.outside_left) for known in value))
        else:
            parts.append(value)
    return tuple(parts)
