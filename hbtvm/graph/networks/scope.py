"""Simplify a network before it is lowered: merge duplicates, drop unread outputs, join forests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hbtvm.graph.columns.table import Made
from hbtvm.graph.networks import join_trees
from hbtvm.graph.networks.complement import without_firsts
from hbtvm.graph.networks.inlined import inlined
from hbtvm.graph.networks.joined import unified
from hbtvm.graph.networks.network import Computed, TableRows, Trees
from hbtvm.operators.base import Node, in_order, rewrite
from hbtvm.operators.pointwise import Elementwise, apply
from hbtvm.operators.shapes import Reduce, Select, concat, reduce, select


def simplified(output: Node) -> Node:
    """Return the same values from fewer operators and forests."""
    (output,) = unified(inlined([output]))
    (output,) = unified(_only_read([output]))
    # Halve forests before they are joined, so that those of one output join others of one.
    (output,) = unified(_halved([output]))
    (output,) = unified(_forests_joined([output]))
    return _positions_joined(output)


def _only_read(outputs: Sequence[Node]) -> list[Node]:
    """Drop the outputs of forests that nothing selects."""
    nodes = in_order(*outputs)
    read: dict[int, set[int] | None] = {id(node): None for node in outputs}
    for node in nodes:
        for x in node.inputs:
            chosen = set(node.indices.tolist()) if isinstance(node, Select) else None
            known = read.get(id(x), set())
            read[id(x)] = None if chosen is None or known is None else known | chosen
    smaller: dict[int, tuple[Trees, dict[int, int]]] = {}
    for node in nodes:
        columns = read.get(id(node))
        if isinstance(node, Trees) and columns is not None and len(columns) < node.width:
            less = _with_outputs(node, sorted(columns))
            if less is not None:
                smaller[id(node)] = less, {column: i for i, column in enumerate(sorted(columns))}
    if not smaller:
        return list(outputs)

    def change(node: Node) -> Node:
        if isinstance(node, Select) and id(node.x) in smaller:
            forest, at = smaller[id(node.x)]
            return select(forest, [at[i] for i in node.indices.tolist()])
        return node

    return rewrite(outputs, change)


def _with_outputs(forest: Trees, columns: Sequence[int]) -> Trees | None:
    """Return a forest with some of its outputs, ascending; None if its leaf values can't be cut so."""
    ensemble = forest.ensemble
    width = ensemble.value_width
    chosen = np.asarray(columns)
    blocks, within = chosen // width, chosen % width
    kept, values = np.unique(blocks), np.unique(within)
    all_of_each = len(chosen) == len(kept) * len(values)
    if np.any(ensemble.tree_output % width) or not all_of_each or len(values) == width:
        return None
    if len(kept) < ensemble.n_outputs // width:
        return None
    return forest.on_ensemble(
        replace(
            ensemble,
            n_outputs=len(chosen),
            value=np.ascontiguousarray(ensemble.value[:, values]),
            tree_output=(ensemble.tree_output // width * len(values)).astype(np.int32),
            base_score=ensemble.base_score[chosen],
        )
    )


def _forests_joined(outputs: Sequence[Node]) -> list[Node]:
    """Join forests that can be joined."""
    groups: dict[Any, list[Trees]] = {}
    for node in in_order(*outputs):
        if isinstance(node, Trees) and isinstance(node.x, TableRows) and not _behind_kernels(node.x):
            groups.setdefault(join_trees.kind_of(node), []).append(node)
    places: dict[int, Node] = {}
    for forests in groups.values():
        joined = join_trees.side_by_side(forests) if len(forests) > 1 else None
        if joined is None:
            continue
        first = 0
        for forest in forests:
            places[id(forest)] = select(joined, range(first, first + forest.width))
            first += forest.width
    return rewrite(outputs, lambda node: places.get(id(node), node)) if places else list(outputs)


def _positions_joined(output: Node) -> Node:
    """Join positions of extremes among columns of the same node into one operator.

    A kernel with a hundred reductions takes minutes to compile (AdaBoost in ONNX: the class of each tree).
    """
    groups: dict[Any, list[Reduce]] = {}
    for node in in_order(output):
        if isinstance(node, Reduce) and node.function in ("argmax", "argmin") and node.groups == 1:
            rounded, source = _selected(node.x)
            if isinstance(source, Select):
                groups.setdefault((node.function, rounded, id(source.x), node.x.width), []).append(node)
    places: dict[int, Node] = {}
    for (function, rounded, _, _), members in groups.items():
        if len(members) < 2:
            continue
        sources = [source for _, source in (_selected(node.x) for node in members)]
        selects = [source for source in sources if isinstance(source, Select)]
        columns = select(selects[0].x, np.concatenate([source.indices for source in selects]))
        if rounded:
            columns = apply("round_float32", columns)
        joined = reduce(function, columns, len(members))
        places |= {id(node): select(joined, [i]) for i, node in enumerate(members)}
    # A position that depends on a joined position is a new node by then, and stays.
    return rewrite([output], lambda node: places.get(id(node), node))[0] if places else output


def _selected(node: Node) -> tuple[bool, Node]:
    """Return whether a node rounds to float32, and the node without the rounding."""
    if isinstance(node, Elementwise) and node.function == "round_float32":
        return True, node.operands[0]
    return False, node


def _halved(outputs: Sequence[Node]) -> list[Node]:
    """Reduce forests of two classes whose shares add up to 1 to the second classes' shares."""

    def change(node: Node) -> Node:
        if not isinstance(node, Trees):
            return node
        seconds = without_firsts(node.ensemble)
        if seconds is None:
            return node
        second = node.on_ensemble(seconds)
        count = seconds.n_outputs
        both = concat([apply("subtract", 1.0, second), second])
        return select(both, np.arange(2 * count).reshape(2, count).T.ravel())

    return rewrite(outputs, change)


def _behind_kernels(rows: TableRows) -> bool:
    """Return whether networks compute some of the columns, maybe from another of the forests."""
    return any(is_computed(column.source) for column in rows.table.columns)


def is_computed(source: object) -> bool:
    """Return whether a network computes a column's values."""
    return isinstance(source, Made) and isinstance(source.operation, Computed)
