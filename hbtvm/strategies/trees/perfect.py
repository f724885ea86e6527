"""Perfect tree traversal: a walk over trees padded to perfect trees.

Hummingbird's algorithm 3. Children need no table: within level l, whose 2**l nodes lie side by
side in the tables from entry 2**l on, the children of node j are nodes 2 * j and 2 * j + 1 of
the next level::

    node[0][t, r]     = the node, of 2**k, that the tests of all nodes above lead to
    node[l + 1][t, r] = 2 * node[l] + (column[feature[t, l, node[l]], r] <= threshold[t, l, node[l]] ? 0 : 1)
    score[r]          = sum over trees t of value[t, node[depth][t, r]]

The first k levels test all of their nodes, which is cheaper than looking up the reached node: a
test takes no gather, and one vector comparison tests a node for all rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import tirx

from hbtvm.runtime.package.signature import Argument
from hbtvm.schedules.cpu import perfect as perfect_cpu
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import Workload
from hbtvm.strategies.base import Strategy, spread, tile_trees
from hbtvm.strategies.intrinsics.lookup import REGISTER
from hbtvm.strategies.scores import StageBuilder, leaf_rows, leaf_table, tree_table
from hbtvm.strategies.trees.forest import Forest

MAX_DEPTH = 12  # a perfect tree of depth d has 2**d leaves; beyond this its tables outgrow the caches
_MAX_FULL_DEPTH = 14  # the same for full trees (`is_full`)
_FULL = 4  # a tree is full if its perfect tree has at most this many times its leaves


class PerfectTreeTraversal(Strategy):
    """Walk over trees padded to perfect trees: children need no table."""

    name = "perfect_tree_traversal"
    schedule = perfect_cpu

    def refuse(self, workload: Workload) -> str | None:
        if workload["depth"] == 0:
            return "no tree has a split, and perfect_tree_traversal needs a level to walk"
        if workload["depth"] > (_MAX_FULL_DEPTH if is_full(workload) else MAX_DEPTH):
            return (
                f"trees are up to {workload['depth']} levels deep; perfect_tree_traversal holds at most "
                f"{MAX_DEPTH}, or {_MAX_FULL_DEPTH} in full trees"
            )
        return None

    def nanoseconds(self, workload: Workload) -> float:
        return float(0.04 * workload["depth"] ** 2)

    def tables(self, forest: Forest, config: Config) -> dict[str, np.ndarray]:
        trees, depth = len(forest.offset) - 1, forest.depth
        levels = perfect_levels(forest)
        column = split_table(forest, levels, forest.column, _room(depth))
        threshold = split_table(forest, levels, forest.threshold, _room(depth))
        rows = leaf_rows(2**depth, forest.value_dtype, config)
        value = np.zeros((trees, rows, forest.value.shape[1]), forest.value_dtype)
        value[:, : 2**depth] = forest.value[levels[-1]]
        tiles, by_tree = tile_trees(forest, int(config["tree_tile"])), config["axis"] == "trees"
        tables = {"column": column, "threshold": threshold, "value": value}
        return {name: spread(table, tiles, 0, by_tree) for name, table in tables.items()}

    def arguments(self, workload: Workload, config: Config) -> tuple[Argument, ...]:
        room, columns = (_room(workload["depth"]),), workload["numeric"] + workload["categorical"]
        return (
            tree_table(workload, config, "column", "int32", room, "index", below=columns),
            tree_table(workload, config, "threshold", workload["dtype"], room),
            leaf_table(workload, config, 2 ** workload["depth"]),
        )

    def function(self, workload: Workload, config: Config) -> Any:
        """Return the tensor expressions as a function ready to be scheduled."""
        builder = StageBuilder(workload, config)
        depth, top = workload["depth"], int(config["top_levels"])
        tables = builder.placeholders(self.arguments(workload, config))
        column, threshold, value = tables

        def first(i: Any, o: Any, g: Any, t: Any, r: Any) -> Any:
            def below(level: int, node: int) -> Any:
                if level == top:
                    return tirx.const(node, "int32")
                at = builder.at(o, g, t, 2**level + node)
                x = (
                    builder.column(i, column[at], r)
                    if builder.trees_inner
                    else builder.stage.columns[i, column[at], r]
                )
                return tirx.Select(
                    x <= threshold[at], below(level + 1, 2 * node), below(level + 1, 2 * node + 1)
                )

            return below(0, 0)

        node = builder.per_tree(first, f"walk_{top}")
        for level in range(top, depth):
            node = _step(builder, column, threshold, node, level)

        def leaf_value(i: Any, o: Any, g: Any, t: Any, r: Any, v: Any) -> Any:
            return builder.leaf_value(value, o, g, t, builder.read(node, i, o, g, t, r), v)

        return builder.function(tables, builder.scores(leaf_value))


def is_full(workload: Workload) -> bool:
    """Return whether padding the trees to perfect trees wastes little."""
    return bool(2 ** workload["depth"] <= _FULL * workload["leaves"])


def perfect_levels(forest: Forest) -> list[np.ndarray]:
    """Return the nodes of each level, over the whole forest, with its trees padded to perfect trees.

    Returns for each level l from the roots to the leaves: int64, shape (T, 2**l). A leaf stands for the whole
    subtree below it.
    """
    base = forest.offset[:-1, None]
    levels = [base.astype(np.int64)]
    for _ in range(forest.depth):
        node = levels[-1]
        split = forest.left[node] >= 0
        children = [np.where(split, base + child[node], node) for child in (forest.left, forest.right)]
        levels.append(np.stack(children, 2).reshape(len(base), -1))
    return levels


def split_table(
    forest: Forest, levels: Sequence[np.ndarray], values: np.ndarray, size: int, leaf: int = 0
) -> np.ndarray:
    """Return numbers of splits in the order of `perfect_levels`: node j of level l is entry ``2**l + j``.

    `values`: a number of each node, shape (N,).
    `size`: entries of a tree, at least 2**depth.
    `leaf`: the number of entries without a split. Below a leaf all leaves have its value: any test is right.
    Returns the values' dtype, shape (T, size).
    """
    table = np.full((len(levels[0]), size), leaf, values.dtype)
    for level, node in enumerate(levels[:-1]):
        table[:, 2**level : 2 ** (level + 1)] = np.where(forest.left[node] >= 0, values[node], leaf)
    return table


def _room(depth: int) -> int:
    """Return the entries of a tree's tables of nodes; a permute may read a register from any level on."""
    return max(1 << depth, 2 * REGISTER // 4)


def _step(builder: StageBuilder, column: Any, threshold: Any, node: Any, level: int) -> Any:
    """Return the nodes that walks reach on the next level."""
    permuted = level < int(builder.config["permute_levels"])
    method = "permute" if permuted else str(builder.config["node_lookup"])
    run = range(2**level, 2 ** (level + 1))

    def step(i: Any, o: Any, g: Any, t: Any, r: Any) -> Any:
        here = builder.read(node, i, o, g, t, r)
        at = builder.entry(column, o, g, t, run, here, method)
        right = tirx.Select(
            builder.column(i, at, r) <= builder.entry(threshold, o, g, t, run, here, method),
            tirx.const(0, "int32"),
            tirx.const(1, "int32"),
        )
        return here * 2 + right

    return builder.per_tree(step, f"walk_{level + 1}")
