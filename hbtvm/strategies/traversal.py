"""Tree traversal: walk from the root, one level for all trees and rows at a time.

Hummingbird's algorithm 2. As a tensor expression the walk is a fold over levels: a
reduction whose combiner takes the node reached so far to the next::

    node[t, r] = fold over levels from 0:
        next(node) = child[t, node] + (column[feature[t, node], r] <= threshold[t, node] ? 0 : 1)
    score[r]   = sum over trees t of value[t, node[t, r]]

so levels can be unrolled and interleaved over rows and trees like any reduction.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import te, tirx
from tvm.s_tir import Schedule

from hbtvm.strategies.base import Strategy, Workload, spread, tile_trees
from hbtvm.strategies.forest import Forest
from hbtvm.strategies.scores import Frame, leaf_rows
from schedules import traversal_cpu
from schedules.loops import Nest
from schedules.space import Columns, Config, Space

_COLUMN_BITS = 16
"""Low bits of a link, which hold a node's column; the others hold its child."""


class TreeTraversal(Strategy):
    """Walk of trees as they are; holds any forest."""

    name = "tree_traversal"

    def refuse(self, workload: Workload) -> str | None:
        return None

    def space(self, workload: Workload, target: dict[str, Any]) -> Space:
        return traversal_cpu.space(workload, target)

    def default(self, workload: Workload, target: dict[str, Any]) -> Config:
        return traversal_cpu.default(workload, target)

    def tables(self, forest: Forest, config: Config) -> dict[str, np.ndarray]:
        order = breadth_first(forest)
        tree = np.repeat(np.arange(len(forest.offset) - 1), np.diff(forest.offset))
        size = int(np.diff(forest.offset).max())
        shape = (len(forest.offset) - 1, size)
        # A leaf is its own successor: a comparison with NaN is always false, so the walk takes
        # child + 1, and child is the node before.
        column = np.zeros(shape, np.int32)
        threshold = np.full(shape, np.nan, forest.dtype)
        child = np.broadcast_to(np.arange(-1, size - 1, dtype=np.int32), shape).copy()
        rows = leaf_rows(size, forest.value_dtype, config)
        value = np.zeros((shape[0], rows, forest.value.shape[1]), forest.value_dtype)
        split = forest.left >= 0
        at = (tree[split], order[split])
        column[at], threshold[at] = forest.column[split], forest.threshold[split]
        child[at] = order[forest.offset[tree[split]] + forest.left[split]]
        value[tree[~split], order[~split]] = forest.value[~split]
        links = (
            {"link": child << _COLUMN_BITS | column}
            if _fits_link(size, forest.n_columns)
            else {"column": column, "child": child}
        )
        # Where there is no tree the walk must stay inside the tables, and every value is 0.
        empty = {"link": -1 << _COLUMN_BITS, "column": 0, "child": -1, "threshold": np.nan, "value": 0}
        tables = {**links, "threshold": threshold, "value": value}
        tiles, by_tree = tile_trees(forest, int(config["tree_tile"])), config["axis"] == "trees"
        return {name: spread(table, tiles, empty[name], by_tree) for name, table in tables.items()}

    def module(self, workload: Workload, config: Config) -> Any:
        sch = Schedule(_function(workload, config))
        traversal_cpu.apply(sch, workload, config)
        return sch.mod

    def loops(self, workload: Workload, columns: Columns) -> Nest:
        return traversal_cpu.loops(workload, columns)


def breadth_first(forest: Forest) -> np.ndarray:
    """Number the nodes of each tree by level, left to right, so that siblings are neighbours.

    Returns
    -------
    int64, shape (N,): each node's number within its tree.
    """
    levels = forest.levels()
    nodes = np.concatenate(levels)
    tree = np.repeat(np.arange(len(forest.offset) - 1), np.diff(forest.offset))
    # Levels come ordered by tree, so a stable sort by tree leaves each tree's levels in order.
    by_tree = nodes[np.argsort(tree[nodes], kind="stable")]
    number = np.empty(len(nodes), np.int64)
    number[by_tree] = np.arange(len(nodes)) - forest.offset[tree[by_tree]]
    return number


def _fits_link(nodes: int, columns: int) -> bool:
    """Whether a node's child and column fit one number, so that one lookup finds both."""
    return nodes < 1 << (31 - _COLUMN_BITS) and columns <= 1 << _COLUMN_BITS


def _function(workload: Workload, config: Config) -> Any:
    """The tensor expressions, as a function ready to be scheduled."""
    frame = Frame(workload, config)
    depth, nodes, method = workload["depth"], workload["nodes"], str(config["node_lookup"])
    linked = _fits_link(nodes, workload["numeric"] + workload["categorical"])
    links = [frame.table(name, (nodes,), "int32") for name in (("link",) if linked else ("column", "child"))]
    threshold = frame.table("threshold", (nodes,), workload["dtype"])
    value = frame.leaf_table(nodes)
    # One level more than none: the fold of a forest of single leaves steps once, in place.
    level = te.reduce_axis((0, max(depth, 1)), "level")

    def walk(i: Any, o: Any, g: Any, t: Any, r: Any) -> Any:
        def step(node: Any, _: Any) -> Any:
            found = [frame.entry(link, o, g, t, range(nodes), node, method) for link in links]
            if linked:
                column, child = found[0] & (2**_COLUMN_BITS - 1), found[0] >> _COLUMN_BITS
            else:
                column, child = found
            left = frame.column(i, column, r) <= frame.entry(threshold, o, g, t, range(nodes), node, method)
            return child + tirx.Select(left, tirx.const(0, "int32"), tirx.const(1, "int32"))

        fold = te.comm_reducer(step, lambda t: tirx.const(0, t), name="fold")
        # The fold ignores its operand; TVM finds the tensors that a reduction depends on only there.
        return fold(frame.stage.columns[i, 0, r].astype("int32"), axis=level)

    node = frame.per_tree(walk, "walk")

    def leaf_value(i: Any, o: Any, g: Any, t: Any, r: Any, v: Any) -> Any:
        return frame.leaf_value(value, o, g, t, frame.read(node, i, o, g, t, r), v)

    return frame.function([*links, threshold, value], frame.scores(leaf_value))
