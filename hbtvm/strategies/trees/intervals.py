"""Leaf intervals: all splits of a tree are tested, parents first, and move the walk's first leaf.

Leaves are numbered from left to right, so a subtree's are an interval. A walk's state is the first leaf of
the subtree that it has reached. A test that fails leads to the right child, whose interval begins behind the
left one's::

    leaf[t, r]  = 0
    for split j of tree t, parents first:
        begin      = ranks[column[t, j], r] > rank[t, j] ? -1 : first[t, j]
        leaf[t, r] = leaf[t, r] == begin ? next[t, j] : leaf[t, r]
    score[r]    = sum over trees t of value[t, leaf[t, r]]

Ranks fall with values: a column's is 127 less the number of its thresholds that the value is above. A split
that the walk does not reach changes nothing, as its interval does not begin at the walk's leaf. As in
QuickScorer (Lucchese et al., SIGIR'15), there is no branch. But columns are ranks of one byte (see `ranks`),
as are leaves, so an instruction tests four times as many splits as with float32 numbers and masks of 32 bits.
Lanes are rows; or trees, for few rows, whose ranks instructions for tables of bytes look up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import te, tirx

from hbtvm.runtime.package.signature import Argument, table
from hbtvm.schedules.cpu import intervals as intervals_cpu
from hbtvm.schedules.cpu.intervals import BYTE, MOST_COLUMNS, MOST_LEAVES
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import Workload, apart_of
from hbtvm.strategies.base import Strategy, leaf_ranges, rank_in_tree, spread, tile_trees
from hbtvm.strategies.intrinsics.lookup import lookup, padded
from hbtvm.strategies.scores import StageBuilder, leaf_rows, leaf_table, tree_table
from hbtvm.strategies.trees.forest import Forest
from hbtvm.strategies.trees.ranks import node_ranks, search_room, search_stage, search_table

_PARTS = 4  # numbers of a test
_TABLE = 16  # bytes of the smallest table that instructions look bytes up in
_CHAINS = 8  # most sums of a tile


class LeafIntervals(Strategy):
    """Tests of all splits by ranks and leaves of one byte."""

    name = "leaf_intervals"
    schedule = intervals_cpu

    def refuse(self, workload: Workload) -> str | None:
        if workload["depth"] == 0:
            return "no tree has a split, and leaf_intervals needs one to test"
        if apart_of(workload):
            return "each tree has outputs of its own, and leaf_intervals adds trees up"
        if workload["leaves"] > MOST_LEAVES:
            return f"trees have up to {workload['leaves']} leaves; leaf_intervals holds at most {MOST_LEAVES}"
        columns = workload["numeric"] + workload["categorical"]
        if columns > MOST_COLUMNS:
            return f"trees test {columns} columns; leaf_intervals holds at most {MOST_COLUMNS}"
        if workload["rank_bits"] > BYTE:
            return f"a column has 2**{BYTE} thresholds or more; leaf_intervals holds ranks of one byte"
        return None

    def nanoseconds(self, workload: Workload) -> float:
        return float(0.02 * workload["leaves"])

    def tables(self, forest: Forest, config: Config) -> dict[str, np.ndarray]:
        tiles, by_tree = tile_trees(forest, int(config["tree_tile"])), config["axis"] == "trees"
        rows = leaf_rows(_leaves(forest), forest.value_dtype, config)
        tables = {"test": split_tests(forest), "value": leaf_values(forest, rows)}
        # Splits of missing trees lead to leaf 0, whose value is 0.
        laid = {name: spread(table, tiles, 0, by_tree and name == "test") for name, table in tables.items()}
        return {"rank_threshold": search_table(forest, intervals_cpu.searched(config)), **laid}

    def arguments(self, workload: Workload, config: Config) -> tuple[Argument, ...]:
        leaves, columns = workload["leaves"], workload["numeric"] + workload["categorical"]
        searched = search_room(columns, workload["rank_bits"], intervals_cpu.searched(config))
        bounds = {"columns": columns, "leaves": leaves, "trees_inner": int(config["axis"] == "trees")}
        return (
            table("rank_threshold", workload["dtype"], searched),
            tree_table(workload, config, "test", "int8", (leaves - 1, _PARTS), "interval", **bounds),
            leaf_table(workload, {**config, "axis": "rows"}, leaves),
        )

    def function(self, workload: Workload, config: Config) -> Any:
        """Return the tensor expressions as a function ready to be scheduled."""
        builder = StageBuilder(workload, config)
        tables = builder.placeholders(self.arguments(workload, config))
        searched, test, value = tables
        count, by_tree = workload["numeric"] + workload["categorical"], builder.trees_inner
        search = intervals_cpu.searched(config)
        ranks = search_stage(workload, search, builder.stage.columns, searched, "int8", falling=True)
        entries = -(-count // _TABLE) * _TABLE
        room = padded(entries, "int8", "permute")
        lowest = tirx.const(-128, "int8")
        if by_tree:
            row_ranks = te.compute(
                (builder.tiles, builder.row_tile, room),
                lambda i, r, c: tirx.if_then_else(c < count, ranks[i, c, r], lowest),
                name="row_ranks",
            )
        split = te.reduce_axis((0, workload["leaves"] - 1), "split")

        def walk(i: Any, o: Any, g: Any, t: Any, r: Any) -> Any:
            def descend(leaf: Any, _: Any) -> Any:
                column, rank, first, behind = (test[builder.at(o, g, t, split, n)] for n in range(_PARTS))
                here = (
                    lookup(row_ranks[i, r, 0], column, entries, "permute")
                    if by_tree
                    else ranks[i, column.astype("int32"), r]
                )
                # No leaf is -1. Only the second comparison waits for the last split's.
                begin = tirx.Select(here > rank, tirx.const(-1, "int8"), first)
                return tirx.Select(leaf == begin, behind, leaf)

            walk = te.comm_reducer(descend, lambda _: tirx.const(0, "int8"), name="descend")
            # The reduction ignores its operand; TVM finds the tensors that it depends on only there.
            return walk(row_ranks[i, r, 0] if by_tree else ranks[i, 0, r], axis=split)

        reached = builder.per_tree(walk, "leaf")

        def leaf_value(i: Any, o: Any, g: Any, t: Any, r: Any, v: Any) -> Any:
            leaf = builder.read(reached, i, o, g, t, r).astype("int32")
            if by_tree:
                return value[o, g, t, leaf, v]
            return builder.leaf_value(value, o, g, t, leaf, v)

        sums = _chained_sums if by_tree else StageBuilder.scores
        return builder.function(tables, sums(builder, leaf_value))


def _chained_sums(builder: StageBuilder, leaf_value: Callable[..., Any]) -> Any:
    """Return the scores of vectors of trees, whose leaf values are loaded and added one by one.

    An addition waits for the one before it, so that a tile has several sums.
    """
    chains, width = min(_CHAINS, int(builder.config["lanes"])), builder.workload["width"]
    tile = te.reduce_axis((0, builder.tree_tiles), "tile")
    each = te.reduce_axis((0, builder.tree_tile // chains), "each")
    chain = te.reduce_axis((0, chains), "chain")
    tile_sums = te.compute(
        (builder.tiles, builder.tree_tiles, builder.groups, width, builder.row_tile, chains),
        lambda i, o, g, v, r, c: te.sum(leaf_value(i, o, g, each * chains + c, r, v), axis=each),
        name="tile_sums",
    )
    return te.compute(
        (builder.tiles, builder.groups, width, builder.row_tile),
        lambda i, g, v, r: te.sum(tile_sums[i, tile, g, v, r, chain].astype("float64"), axis=[tile, chain]),
        name="scores",
    )


def split_tests(forest: Forest) -> np.ndarray:
    """Return the tests of all trees, parents first: column, falling rank, ``first``, ``next``.

    Returns int8, shape (T, splits, 4). Missing splits lead to the leaf that they begin with.
    """
    trees, start = len(forest.offset) - 1, leaf_ranges(forest)[0]
    tree = np.repeat(np.arange(trees), np.diff(forest.offset))
    level = np.zeros(len(tree), np.int64)
    for number, nodes in enumerate(forest.levels()):
        level[nodes] = number
    split = np.flatnonzero(forest.left >= 0)
    split = split[np.lexsort((split, level[split], tree[split]))]
    tests = np.zeros((trees, _leaves(forest) - 1, _PARTS), np.int8)
    right = start[(forest.base + forest.right)[split]]
    parts = forest.column[split], 126 - node_ranks(forest)[split], start[split], right
    tests[tree[split], rank_in_tree(tree[split], trees)] = np.stack(parts, 1)
    return tests


def leaf_values(forest: Forest, rows: int) -> np.ndarray:
    """Return the leaf values of all trees from left to right: shape (T, rows, V)."""
    trees, start = len(forest.offset) - 1, leaf_ranges(forest)[0]
    leaf = np.flatnonzero(forest.left < 0)
    tree = np.repeat(np.arange(trees), np.diff(forest.offset))[leaf]
    value = np.zeros((trees, rows, forest.value.shape[1]), forest.value_dtype)
    value[tree, start[leaf]] = forest.value[leaf]
    return value


def _leaves(forest: Forest) -> int:
    """Return the leaves of the largest tree."""
    return int(np.diff(forest.offset).max() + 1) // 2
