"""GEMM strategy: a tree as matrix products (Hummingbird, algorithm 1).

A, B: which feature each node tests, and its threshold; C: for each node and leaf, 1 if
the leaf lies in the node's left subtree, -1 in its right one, 0 elsewhere; D: the left edges
on the path to a leaf. The product of a row's tests with C is, for every leaf, the number of
true tests with the leaf on the left, less those with it on the right; only for the leaf
that the row reaches does it equal D. Two of CMLCompiler's rewrites (section 3) make the
products small: A has one non-zero per column, so its product is a choice of columns, and
the product with the one-hot leaf is a lookup; and the middle product, of numbers that fit
a byte, is computed in bytes::

    tests[t, j, r] = column[feature[t, j], r] <= threshold[t, j]
    hits[t, l, r]  = sum over j of tests[t, j, r] * path[t, j, l]
    leaf[t, r]     = sum over l of (hits[t, l, r] == left_counts[t, l] ? l : 0)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import te, tirx

from hbtvm.runtime.package.signature import Argument
from hbtvm.schedules.cpu import gemm as gemm_cpu
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import Workload
from hbtvm.strategies.base import Strategy, leaf_ranges, rank_in_tree, spread, tile_trees
from hbtvm.strategies.scores import StageBuilder, leaf_rows, leaf_table, tree_table
from hbtvm.strategies.trees.forest import Forest

MAX_LEAVES = 256  # the work and the path table grow with the square of the leaves


def unreachable(leaves: int) -> int:
    """Return a count of left edges that no path reaches, for padding leaves."""
    return int(np.iinfo(np.int8).max if leaves <= 127 else np.iinfo(np.int16).max)


def tree_tables(
    forest: Forest, index_dtype: str, product_dtype: str, splits: int, leaves: int, rows: int | None = None
) -> dict[str, np.ndarray]:
    """Return the tables of all trees.

    `splits`, `leaves`: nodes and leaves to pad each tree to.
    `rows`: entries of a tree's table of leaf values; by default, as many as leaves.
    Returns ``column`` and ``threshold``, shape (T, splits), ``path``, (T, splits, leaves), ``left_counts``,
    (T, leaves), and ``value``, (T, rows, V).
    """
    sizes = np.diff(forest.offset)
    trees = len(sizes)
    tree = np.repeat(np.arange(trees), sizes)
    split, leaf = np.flatnonzero(forest.left >= 0), np.flatnonzero(forest.left < 0)
    slot = rank_in_tree(tree[split], trees)
    start, count = leaf_ranges(forest)

    product = np.dtype(product_dtype)
    column = np.zeros((trees, splits), index_dtype)
    threshold = np.zeros((trees, splits), forest.dtype)
    at = (tree[split], slot)
    column[at], threshold[at] = forest.column[split], forest.threshold[split]
    path = np.zeros((trees, splits, leaves), product)
    number = np.arange(leaves)
    base = forest.offset[tree[split]]
    for child, sign in ((base + forest.left[split], 1), (base + forest.right[split], -1)):
        below = (number >= start[child, None]) & (number < (start + count)[child, None])
        path[at] += np.where(below, sign, 0).astype(product)
    # Padding, whose count no row reaches.
    left_counts = np.full((trees, leaves), unreachable(leaves), product)
    left_turns = (path > 0).sum(1)
    left_counts[tree[leaf], start[leaf]] = left_turns[tree[leaf], start[leaf]]
    value = np.zeros((trees, rows or leaves, forest.value.shape[1]), forest.value_dtype)
    value[tree[leaf], start[leaf]] = forest.value[leaf]
    return {
        "column": column,
        "threshold": threshold,
        "path": path,
        "left_counts": left_counts,
        "value": value,
    }


class Gemm(Strategy):
    """Matrix products; for trees of at most 256 leaves."""

    name = "gemm"
    schedule = gemm_cpu

    def refuse(self, workload: Workload) -> str | None:
        if workload["leaves"] > MAX_LEAVES:
            return f"trees have up to {workload['leaves']} leaves; gemm holds at most {MAX_LEAVES}"
        return None

    def nanoseconds(self, workload: Workload) -> float:
        return float(0.5 * workload["leaves"])

    def tables(self, forest: Forest, config: Config) -> dict[str, np.ndarray]:
        leaves = int(np.diff(forest.offset).max() + 1) // 2
        product, rows = str(config["product_dtype"]), leaf_rows(leaves, forest.value_dtype, config)
        by_tree = tree_tables(forest, str(config["index_dtype"]), product, max(leaves - 1, 1), leaves, rows)
        tiles = tile_trees(forest, int(config["tree_tile"]))
        empty = {"left_counts": unreachable(leaves)}
        return {name: spread(table, tiles, empty.get(name, 0), False) for name, table in by_tree.items()}

    def arguments(self, workload: Workload, config: Config) -> tuple[Argument, ...]:
        leaves, columns = workload["leaves"], workload["numeric"] + workload["categorical"]
        splits, product, index = max(leaves - 1, 1), str(config["product_dtype"]), str(config["index_dtype"])
        return (
            tree_table(workload, config, "column", index, (splits,), "index", below=columns),
            tree_table(workload, config, "threshold", workload["dtype"], (splits,)),
            tree_table(workload, config, "path", product, (splits, leaves), "path", leaf_axis=1),
            tree_table(workload, config, "left_counts", product, (leaves,)),
            leaf_table(workload, config, leaves),
        )

    def function(self, workload: Workload, config: Config) -> Any:
        """Return the tensor expressions as a function ready to be scheduled."""
        builder = StageBuilder(workload, config)
        leaves, product = workload["leaves"], str(config["product_dtype"])
        splits = max(leaves - 1, 1)
        tables = builder.placeholders(self.arguments(workload, config))
        column, threshold, path, left_counts, value = tables
        columns = builder.stage.columns
        floating = product.startswith("float")
        # As integers, true has all bits set: the product with -1, 0 or 1 is a bitwise and.
        true, false = tirx.const(1 if floating else -1, product), tirx.const(0, product)

        shape = (builder.tiles, builder.tree_tiles, builder.groups, builder.tree_tile)
        tests = te.compute(
            (*shape, splits, builder.row_tile),
            lambda i, o, g, t, j, r: tirx.Select(
                columns[i, column[o, g, t, j].astype("int32"), r] <= threshold[o, g, t, j], true, false
            ),
            name="tests",
        )
        node = te.reduce_axis((0, splits), "node")

        def product_of(test: Any, direction: Any) -> Any:
            return test * direction if floating else test & direction

        hits = te.compute(
            (*shape, leaves, builder.row_tile),
            lambda i, o, g, t, k, r: te.sum(
                product_of(tests[i, o, g, t, node, r], path[o, g, t, node, k]), axis=node
            ),
            name="hits",
        )
        end = te.reduce_axis((0, leaves), "end")
        leaf = te.compute(
            (*shape, builder.row_tile),
            lambda i, o, g, t, r: te.sum(
                tirx.Select(
                    hits[i, o, g, t, end, r] == left_counts[o, g, t, end], end.var.astype(product), false
                ),
                axis=end,
            ),
            name="leaf",
        )

        def leaf_value(i: Any, o: Any, g: Any, t: Any, r: Any, v: Any) -> Any:
            return builder.leaf_value(value, o, g, t, leaf[i, o, g, t, r].astype("int32"), v)

        return builder.function(tables, builder.scores(leaf_value))
