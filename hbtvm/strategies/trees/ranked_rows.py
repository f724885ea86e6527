"""Ranked traversal in vectors of rows: ranks are bytes or words, so registers hold more rows than of numbers.

The first levels test all of their nodes, as `perfect` does, by one comparison of ranks for each node. The
last `LEVELS` levels below the reached node are a small subtree, whose tests instructions compute together for
one row (see `hbtvm.strategies.intrinsics.subtree`)::

    node[t, r]  = the node, of 2**k, that the tests of the first k levels lead to
    tests       = bit n: ranks[r, column of node n of subtree node[t, r]] > its threshold's rank
    score[r]    = sum over trees t of value[t, 8 * node[t, r] + leaf[tests]]
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import te, tirx

from hbtvm.runtime.package.signature import Argument, table
from hbtvm.schedules.cpu.oblivious import rank_dtype
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import Workload
from hbtvm.strategies.base import spread, tile_trees
from hbtvm.strategies.intrinsics.lookup import lookup
from hbtvm.strategies.intrinsics.subtree import (
    LEVELS,
    NODES,
    REGISTER,
    blocks_of,
    record_size,
    records_of,
    tests_of,
)
from hbtvm.strategies.scores import StageBuilder, leaf_table, tree_table
from hbtvm.strategies.trees.forest import Forest
from hbtvm.strategies.trees.perfect import perfect_levels, split_table
from hbtvm.strategies.trees.ranks import node_ranks, search_stage

_TESTS = 256  # values of a byte of tests


def row_tables(forest: Forest, config: Config) -> dict[str, np.ndarray]:
    """Return the tables of a configuration, by name, in the order of `row_arguments`."""
    trees, depth = len(forest.offset) - 1, forest.depth
    top = depth - LEVELS
    levels = perfect_levels(forest)
    limits = np.iinfo(rank_dtype(forest.rank_bits))
    ranks = (node_ranks(forest) + int(limits.min)).astype(limits.dtype)
    column = split_table(forest, levels, forest.column, 2**depth)
    rank = split_table(forest, levels, ranks, 2**depth, int(limits.max))
    root = np.arange(2**top, 2 ** (top + 1))
    levels_of = [(n + 1).bit_length() - 1 for n in range(NODES - 1)]
    node = np.stack([(root << level) + n + 1 - 2**level for n, level in enumerate(levels_of)], 1)
    record = records_of(column[:, node], rank[:, node], forest.n_columns)
    value = forest.value[levels[-1]].astype(forest.value_dtype)
    tiles = tile_trees(forest, int(config["tree_tile"]))
    inner = slice(0, 2**top)
    tables = {
        "column": column[:, inner],
        "rank": rank[:, inner],
        "record": record.reshape(trees, 2**top, -1),
        "value": value,
    }
    return {"leaf": leaves_of_tests(), **{name: spread(t, tiles, 0, False) for name, t in tables.items()}}


def row_arguments(workload: Workload, config: Config) -> tuple[Argument, ...]:
    """Return the arguments behind the table of thresholds."""
    columns, dtype = workload["numeric"] + workload["categorical"], rank_dtype(workload["rank_bits"])
    top = 2 ** (workload["depth"] - LEVELS)
    return (
        table("leaf", "int8", (_TESTS,), "index", below=2**LEVELS),
        tree_table(workload, config, "column", "int32", (top,), "index", below=columns),
        tree_table(workload, config, "rank", dtype, (top,)),
        tree_table(workload, config, "record", dtype, (top, record_size(columns, dtype))),
        leaf_table(workload, config, 2 ** workload["depth"]),
    )


def row_function(workload: Workload, config: Config, builder: StageBuilder, tables: list[Any]) -> Any:
    """Return the tensor expressions as a function ready to be scheduled."""
    searched, leaf, column, rank, record, value = tables
    top, count = workload["depth"] - LEVELS, workload["numeric"] + workload["categorical"]
    dtype = rank_dtype(workload["rank_bits"])
    ranks = search_stage(workload, config, builder.stage.columns, searched, dtype)
    room = REGISTER // np.dtype(dtype).itemsize * blocks_of(count, dtype)
    zero = tirx.const(0, dtype)

    def rank_of(i: Any, r: Any, c: Any) -> Any:
        return tirx.if_then_else(c < count, ranks[i, c, r], zero) if room > count else ranks[i, c, r]

    by_row = te.compute((builder.tiles, builder.row_tile, room), rank_of, name="row_ranks")

    def first(i: Any, o: Any, g: Any, t: Any, r: Any) -> Any:
        def below(level: int, node: int) -> Any:
            if level == top:
                return tirx.const(node, dtype)
            at = builder.at(o, g, t, 2**level + node)
            left, right = (below(level + 1, 2 * node + side) for side in (0, 1))
            return tirx.Select(ranks[i, column[at], r] > rank[at], right, left)

        return below(0, 0)

    node = builder.per_tree(first, "walk")

    def reached(i: Any, o: Any, g: Any, t: Any, r: Any) -> Any:
        here = builder.read(node, i, o, g, t, r).astype("int32")
        tests = tests_of(record[builder.at(o, g, t, 0, 0)], here, by_row[i, r, 0], count)
        return here * 2**LEVELS + lookup(leaf[0], tests, _TESTS, "scalar").astype("int32")

    ends = builder.per_tree(reached, "ends")

    def leaf_value(i: Any, o: Any, g: Any, t: Any, r: Any, v: Any) -> Any:
        return builder.leaf_value(value, o, g, t, builder.read(ends, i, o, g, t, r), v)

    return builder.function(tables, builder.scores(leaf_value))


def leaves_of_tests() -> np.ndarray:
    """Return the leaf that a subtree's tests lead to, by the byte of their bits: int8, shape (256,)."""
    tests, node = np.arange(_TESTS), np.zeros(_TESTS, np.int64)
    for level in range(LEVELS):
        node = 2 * node + (tests >> (2**level - 1 + node) & 1)
    return node.astype(np.int8)
