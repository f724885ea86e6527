"""Tree traversal: walk from the root, one level for all trees and rows at a time.

Hummingbird's algorithms 2 (TreeTraversal) and 3 (PerfectTreeTraversal). As a tensor
expression the walk is a fold over levels: a reduction whose combiner takes the node
reached so far to the next::

    node[t, r] = fold over levels from 0: next(node) with
        TT:   next(node) = child[t, node] + (column[feature[t, node], r] <= threshold[t, node] ? 0 : 1)
        PTT:  next(node) = 2 * node + 1   + (column[feature[t, node], r] <= threshold[t, node] ? 0 : 1)
    score[r] = sum over trees t of value[t, node[t, r]]

so levels can be unrolled and interleaved over rows and trees like any reduction.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import te, tirx
from tvm.s_tir import Schedule

from hbtvm.strategies.base import Strategy, Workload, spread, tile_trees
from hbtvm.strategies.forest import Forest
from hbtvm.strategies.scores import Frame
from schedules import traversal_cpu
from schedules.loops import Nest
from schedules.space import Columns, Config, Space

MAX_PERFECT_DEPTH = 12
"""A perfect tree of depth d has 2**d leaves; beyond this its tables outgrow the caches."""


class _Walk(Strategy):
    """What the two walks share."""

    perfect: bool

    def space(self, workload: Workload, target: dict[str, Any]) -> Space:
        return traversal_cpu.space(workload, target)

    def default(self, workload: Workload, target: dict[str, Any]) -> Config:
        return traversal_cpu.default(workload, target)

    def module(self, workload: Workload, config: Config) -> Any:
        sch = Schedule(_function(workload, config, self.perfect))
        traversal_cpu.apply(sch, workload, config)
        return sch.mod

    def loops(self, workload: Workload, columns: Columns) -> Nest:
        return traversal_cpu.loops(workload, columns, self.perfect)


class TreeTraversal(_Walk):
    """Walk of trees as they are; holds any forest."""

    name = "tree_traversal"
    perfect = False

    def refuse(self, workload: Workload) -> str | None:
        return None

    def tables(self, forest: Forest, config: Config) -> dict[str, np.ndarray]:
        order = breadth_first(forest)
        tree = np.repeat(np.arange(len(forest.offset) - 1), np.diff(forest.offset))
        size = int(np.diff(forest.offset).max())
        shape = (len(forest.offset) - 1, size)
        index_dtype = str(config["index_dtype"])
        # A leaf is its own successor: a comparison with NaN is always false, so the walk takes
        # child + 1, and child is the node before.
        column = np.zeros(shape, index_dtype)
        threshold = np.full(shape, np.nan, forest.dtype)
        child = np.broadcast_to(np.arange(-1, size - 1), shape).astype(index_dtype)
        value = np.zeros((*shape, forest.value.shape[1]), forest.value_dtype)
        split = forest.left >= 0
        at = (tree[split], order[split])
        column[at], threshold[at] = forest.column[split], forest.threshold[split]
        child[at] = order[forest.offset[tree[split]] + forest.left[split]]
        value[tree[~split], order[~split]] = forest.value[~split]
        return _lay_out(forest, config, {"column": column, "threshold": threshold, "child": child}, value)


class PerfectTreeTraversal(_Walk):
    """Walk of trees filled up to perfect ones: children need no table."""

    name = "perfect_tree_traversal"
    perfect = True

    def refuse(self, workload: Workload) -> str | None:
        if workload["depth"] == 0:
            return "no tree has a split, and perfect_tree_traversal needs a level to walk"
        if workload["depth"] > MAX_PERFECT_DEPTH:
            return (
                f"trees are up to {workload['depth']} levels deep; "
                f"perfect_tree_traversal holds at most {MAX_PERFECT_DEPTH}"
            )
        return None

    def tables(self, forest: Forest, config: Config) -> dict[str, np.ndarray]:
        trees = len(forest.offset) - 1
        base = forest.offset[:-1, None]
        node = np.zeros((trees, 1), np.int64)
        column, threshold = [], []
        for _ in range(len(forest.levels()) - 1):
            split = forest.left[base + node] >= 0
            column.append(np.where(split, forest.column[base + node], 0))
            # Below a leaf both ways lead to the same value, so any threshold does.
            threshold.append(np.where(split, forest.threshold[base + node], 0).astype(forest.dtype))
            left = np.where(split, forest.left[base + node], node)
            right = np.where(split, forest.right[base + node], node)
            node = np.stack([left, right], 2).reshape(trees, -1)
        tables = {
            "column": np.concatenate(column, 1).astype(str(config["index_dtype"])),
            "threshold": np.concatenate(threshold, 1),
        }
        return _lay_out(forest, config, tables, forest.value[base + node])


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


def _lay_out(
    forest: Forest, config: Config, per_node: dict[str, np.ndarray], value: np.ndarray
) -> dict[str, np.ndarray]:
    tiles = tile_trees(forest, int(config["tree_tile"]))
    trees_inner = config["axis"] == "trees"
    # Where there is no tree the walk must stay inside the tables, and every value is 0.
    empty = {"column": 0, "threshold": np.nan, "child": -1}
    laid = {name: spread(table, tiles, empty[name], trees_inner) for name, table in per_node.items()}
    return {**laid, "value": spread(value, tiles, 0, trees_inner)}


def _function(workload: Workload, config: Config, perfect: bool) -> Any:
    """The tensor expressions, as a function ready to be scheduled."""
    frame = Frame(workload, config)
    depth, index_dtype = workload["depth"], str(config["index_dtype"])
    leaves = 2**depth if perfect else workload["nodes"]
    nodes = leaves - 1 if perfect else leaves
    column = frame.table("column", (nodes,), index_dtype)
    threshold = frame.table("threshold", (nodes,), workload["dtype"])
    child = None if perfect else frame.table("child", (nodes,), index_dtype)
    value = frame.table("value", (leaves, workload["width"]), workload["value_dtype"])
    columns = frame.stage.columns
    # One level more than none: the fold of a forest of single leaves steps once, in place.
    level = te.reduce_axis((0, max(depth, 1)), "level")

    def walk(i: Any, o: Any, g: Any, t: Any, r: Any) -> Any:
        def step(node: Any, _: Any) -> Any:
            at = frame.at(o, g, t, node)
            left = columns[i, column[at].astype("int32"), r] <= threshold[at]
            child_at = node * 2 + 1 if child is None else child[at].astype("int32")
            return child_at + tirx.Select(left, tirx.const(0, "int32"), tirx.const(1, "int32"))

        fold = te.comm_reducer(step, lambda t: tirx.const(0, t), name="fold")
        # The fold ignores its operand; TVM finds the tensors that a reduction depends on only there.
        return fold(columns[i, 0, r].astype("int32"), axis=level)

    node = frame.per_tree(walk, "walk")

    def leaf_value(i: Any, o: Any, g: Any, t: Any, r: Any, v: Any) -> Any:
        at = frame.read(node, i, o, g, t, r)
        if perfect:
            at = at - (leaves - 1)
        return value[frame.at(o, g, t, at, v)]

    tables = [column, threshold, *([] if child is None else [child]), value]
    return frame.function(tables, frame.scores(leaf_value))
