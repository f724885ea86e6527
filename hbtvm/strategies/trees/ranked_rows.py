"""Ranked traversal in vectors of rows: ranks are bytes, so registers hold more rows than of numbers.

The first levels test all of their nodes by masks of bytes (`hbtvm.strategies.trees.ranked_bytes`), and each
row walks the rest::

    node[t, r]  = the node, of 2**k, that the tests of the first k levels lead to
    score[r]    = sum over trees t of value[t, leaf that row r reaches from node[t, r]]

The knob ``byte_levels`` is k, and the walk is scalar (see `hbtvm.strategies.intrinsics.walk`). At 0, the last
`LEVELS` levels below the reached node are a small subtree, whose tests instructions compute together for one
row of few columns (see `hbtvm.strategies.intrinsics.subtree`)::

    tests       = bit n: ranks[r, column of node n of subtree node[t, r]] > its threshold's rank
    leaf        = 8 * node[t, r] + leaf[tests]
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
from hbtvm.strategies.intrinsics.walk import COLUMN_BITS, end_of
from hbtvm.strategies.scores import StageBuilder, leaf_table, tree_table
from hbtvm.strategies.trees.forest import Forest
from hbtvm.strategies.trees.perfect import perfect_levels, split_table
from hbtvm.strategies.trees.ranked_bytes import (
    byte_arguments,
    byte_stage,
    byte_tables,
    mask_arguments,
    mask_stage,
    mask_tables,
)
from hbtvm.strategies.trees.ranks import node_ranks, search_stage

_TESTS = 256  # values of a byte of tests


def row_tables(forest: Forest, config: Config) -> dict[str, np.ndarray]:
    """Return the tables of a configuration, by name, in the order of `row_arguments`."""
    depth, top = forest.depth, _top(forest.depth, config)
    levels, ranks = perfect_levels(forest), node_ranks(forest)
    value = forest.value[levels[-1]].astype(forest.value_dtype)
    shared, tables = byte_tables(forest), mask_tables(forest, top)
    if config["byte_levels"]:
        word = split_table(forest, levels, forest.column | ranks + 1 << COLUMN_BITS, 2**depth)
        tables["word"] = word.astype(np.int32)
    else:
        shared["leaf"] = leaves_of_tests()
        limits = np.iinfo(rank_dtype(forest.rank_bits))
        ranks = (ranks + int(limits.min)).astype(limits.dtype)
        column = split_table(forest, levels, forest.column, 2**depth)
        rank = split_table(forest, levels, ranks, 2**depth, int(limits.max))
        root = np.arange(2**top, 2 ** (top + 1))
        levels_of = [(n + 1).bit_length() - 1 for n in range(NODES - 1)]
        node = np.stack([(root << level) + n + 1 - 2**level for n, level in enumerate(levels_of)], 1)
        record = records_of(column[:, node], rank[:, node], forest.n_columns)
        tables["record"] = record.reshape(len(value), 2**top, -1)
    tables["value"] = value
    tiles = tile_trees(forest, int(config["tree_tile"]))
    return {**shared, **{name: spread(t, tiles, 0, False) for name, t in tables.items()}}


def _top(depth: int, config: Config) -> int:
    """Return the levels whose nodes are all tested."""
    return int(config["byte_levels"]) or depth - LEVELS


def row_arguments(workload: Workload, config: Config) -> tuple[Argument, ...]:
    """Return the arguments behind the table of thresholds."""
    columns, dtype = workload["numeric"] + workload["categorical"], rank_dtype(workload["rank_bits"])
    depth, top = workload["depth"], _top(workload["depth"], config)
    masks, value = mask_arguments(workload, config, top), leaf_table(workload, config, 2**depth)
    if config["byte_levels"]:
        bits: dict[str, Any] = {"bits": COLUMN_BITS, "below": columns}
        word = tree_table(workload, config, "word", "int32", (2**depth,), "ranked_word", **bits)
        return (*byte_arguments(workload), *masks, word, value)
    leaf = table("leaf", "int8", (_TESTS,), "index", below=2**LEVELS)
    record = tree_table(workload, config, "record", dtype, (2**top, record_size(columns, dtype)))
    return (*byte_arguments(workload), leaf, *masks, record, value)


def row_function(workload: Workload, config: Config, builder: StageBuilder, tables: list[Any]) -> Any:
    """Return the tensor expressions as a function ready to be scheduled."""
    searched, *others, column, limit, below, value = tables
    depth, top = workload["depth"], _top(workload["depth"], config)
    count, dtype = workload["numeric"] + workload["categorical"], rank_dtype(workload["rank_bits"])
    ranks = search_stage(workload, config, builder.stage.columns, searched, dtype)
    scalar = bool(config["byte_levels"])
    leaf = None if scalar else others.pop()
    node = mask_stage(builder, byte_stage(builder, ranks, others), column, limit, top)
    room = count if scalar else REGISTER // np.dtype(dtype).itemsize * blocks_of(count, dtype)
    zero, lowest = tirx.const(0, dtype), tirx.const(-int(np.iinfo(dtype).min), f"u{dtype}")

    def rank_of(i: Any, r: Any, c: Any) -> Any:
        if scalar:  # the carry of a comparison is of unsigned numbers
            return ranks[i, c, r].astype(f"u{dtype}") + lowest
        return tirx.if_then_else(c < count, ranks[i, c, r], zero) if room > count else ranks[i, c, r]

    by_row = te.compute((builder.tiles, builder.row_tile, room), rank_of, name="row_ranks")

    def reached(i: Any, o: Any, g: Any, t: Any, r: Any) -> Any:
        here = builder.read(node, i, o, g, t, r).astype("int32") - 1
        if leaf is None:
            return end_of(below[builder.at(o, g, t, 0)], here, by_row[i, r, 0], top, depth)
        tests = tests_of(below[builder.at(o, g, t, 0, 0)], here, by_row[i, r, 0], count)
        return here * 2**LEVELS + lookup(leaf[0], tests, _TESTS, "scalar").astype("int32")

    ends = None if scalar else builder.per_tree(reached, "ends")

    def leaf_value(i: Any, o: Any, g: Any, t: Any, r: Any, v: Any) -> Any:
        end = reached(i, o, g, t, r) if ends is None else builder.read(ends, i, o, g, t, r)
        return builder.leaf_value(value, o, g, t, end, v)

    return builder.function(tables, builder.scores(leaf_value))


def leaves_of_tests() -> np.ndarray:
    """Return the leaf that a subtree's tests lead to, by the byte of their bits: int8, shape (256,)."""
    tests, node = np.arange(_TESTS), np.zeros(_TESTS, np.int64)
    for level in range(LEVELS):
        node = 2 * node + (tests >> (2**level - 1 + node) & 1)
    return node.astype(np.int8)
