"""Oblivious strategy: trees whose levels each test one column against one threshold.

CatBoost's symmetric trees have this form, and so do stumps. A tree of depth d needs d comparisons and no
walk: comparison l gives bit d - 1 - l of the leaf's number. Columns are ranks of one byte (see `ranks`), so
an instruction compares four times as many rows as with float32 numbers::

    leaf[t, r]  = sum over levels l of (ranks[column[t, l], r] > rank[t, l] ? 2 ** (d - 1 - l) : 0)
    score[r]    = sum over trees t of value[t, leaf[t, r]]

All trees share the ranks. A binary search computes each in a perfect tree of the column's thresholds, stored
level by level, so that permutes of registers look up its first levels. Ranks take two bytes if a column has
more than 255 thresholds.

Vectors of rows may look up leaf values as bytes, too (see `digits`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import tirx

from hbtvm.runtime.package.signature import Argument, table
from hbtvm.schedules.cpu import oblivious as oblivious_cpu
from hbtvm.schedules.cpu.oblivious import leaf_bits, rank_dtype, rank_room, row_dtype
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import Workload
from hbtvm.strategies.base import Strategy, spread, tile_trees
from hbtvm.strategies.columns import column_tables
from hbtvm.strategies.intrinsics.lookup import lookup
from hbtvm.strategies.scores import StageBuilder, leaf_rows, leaf_table, tree_table
from hbtvm.strategies.trees.digits import digit_arguments, digit_scores, digit_tables
from hbtvm.strategies.trees.forest import Forest
from hbtvm.strategies.trees.perfect import MAX_DEPTH, is_full, perfect_levels
from hbtvm.strategies.trees.ranks import level_order, node_ranks, search_stage

_MAX_RANK_BITS = 16
_LEVELS = 3  # least depth from which one comparison per level is faster than one per node


class Oblivious(Strategy):
    """Leaf numbers from one comparison per level; for trees whose levels each make one test."""

    name = "oblivious"
    schedule = oblivious_cpu

    def refuse(self, workload: Workload) -> str | None:
        if workload["depth"] == 0:
            return "no tree has a split, and oblivious needs a level to test"
        if not workload.get("oblivious"):
            return "a level's nodes make different tests; oblivious needs trees with one test for each level"
        if workload["depth"] > MAX_DEPTH:
            return f"trees are up to {workload['depth']} levels deep; oblivious holds at most {MAX_DEPTH}"
        if workload["rank_bits"] > _MAX_RANK_BITS:
            return (
                f"a column has 2**{_MAX_RANK_BITS} thresholds or more; oblivious holds ranks of at most "
                f"{_MAX_RANK_BITS} bits"
            )
        return None

    def nanoseconds(self, workload: Workload) -> float:
        return float(0.1 + 0.001 * min(2 ** workload["depth"], 300))

    def _shared(self, forest: Forest) -> dict[str, np.ndarray]:
        return {**column_tables(forest), "rank_threshold": level_order(forest)}

    def tables(self, forest: Forest, config: Config) -> dict[str, np.ndarray]:
        depth, by_tree = forest.depth, config["axis"] == "trees"
        column, rank = level_tests(forest)
        dtype = rank_dtype(forest.rank_bits)
        lowest = int(np.iinfo(dtype).min)
        rows = leaf_rows(2**depth, forest.value_dtype, config)
        value = np.zeros((len(column), rows, forest.value.shape[1]), forest.value_dtype)
        value[:, : 2**depth] = forest.value[perfect_levels(forest)[-1]]
        tiles = tile_trees(forest, int(config["tree_tile"]))
        tables = {"column": column, "rank": (rank + lowest).astype(dtype), "value": value}
        empty = {"rank": never(forest) + lowest}
        laid = {name: spread(table, tiles, empty.get(name, 0), by_tree) for name, table in tables.items()}
        if config["leaf_lookup"] == "digits":
            del laid["value"]
            laid |= digit_tables(value[:, : 2**depth, 0], tiles)
        return laid

    def arguments(self, workload: Workload, config: Config) -> tuple[Argument, ...]:
        depth, columns = (workload["depth"],), _columns(workload)
        rank = rank_dtype(workload["rank_bits"])
        leaves = 2 ** workload["depth"]
        values = (
            digit_arguments(workload, config, leaves)
            if config["leaf_lookup"] == "digits"
            else (leaf_table(workload, config, leaves),)
        )
        return (
            table("rank_threshold", workload["dtype"], rank_room(columns, workload["rank_bits"])),
            tree_table(workload, config, "column", "int32", depth, "index", below=columns),
            tree_table(workload, config, "rank", rank, depth),
            *values,
        )

    def function(self, workload: Workload, config: Config) -> Any:
        """Return the tensor expressions as a function ready to be scheduled."""
        by_tree = config["axis"] == "trees"
        room = rank_room(_columns(workload), workload["rank_bits"])[0] if by_tree else 0
        builder = StageBuilder(workload, config, room=room)
        tables = builder.placeholders(self.arguments(workload, config))
        searched, column, rank, *values = tables
        depth, dtype = workload["depth"], row_dtype(workload, config)
        ranks = search_stage(workload, config, builder.stage.columns, searched, dtype)
        bits = leaf_bits(workload, config)

        def number(levels: range) -> Any:
            """Return the part of the leaf's number that levels decide, with the last level's bit as 1."""

            def part(i: Any, o: Any, g: Any, t: Any, r: Any) -> Any:
                result = tirx.const(0, dtype)
                for level in levels:
                    at = builder.at(o, g, t, level)
                    if by_tree:
                        here = lookup(ranks[i, r, 0], column[at], room, str(config["row_lookup"]))
                    else:
                        here = ranks[i, column[at], r]
                    bit = levels.stop - 1 - level
                    # The highest bit of a byte is its sign.
                    weight = np.array(1 << bit, np.int64).astype(dtype).item()
                    result = result + tirx.Select(
                        here > rank[at].astype(dtype), tirx.const(weight, dtype), tirx.const(0, dtype)
                    )
                return result

            return part

        parts = [
            builder.per_tree(number(range(max(stop - bits, 0), stop)), f"leaf_{at}")
            for at, stop in enumerate(range(depth, 0, -bits))
        ]

        if config["leaf_lookup"] == "digits":
            return builder.function(tables, digit_scores(builder, parts[0], *values))
        (value,) = values

        def leaf_value(i: Any, o: Any, g: Any, t: Any, r: Any, v: Any) -> Any:
            leaf = tirx.const(0, "int32")
            for at, part in enumerate(parts):
                here = builder.read(part, i, o, g, t, r).astype("int32")
                leaf = leaf + (here if by_tree else (here & (2**bits - 1)) << (bits * at))
            return builder.leaf_value(value, o, g, t, leaf, v)

        return builder.function(tables, builder.scores(leaf_value))


def pays(workload: Workload) -> bool:
    """Whether one comparison for each level should be faster than one for each node.

    A search for the rank of each column has to pay, and a table of all leaves to be in use.
    """
    columns = _columns(workload)
    return (
        columns <= workload["trees"] * workload["groups"]
        and workload["depth"] >= _LEVELS
        and is_full(workload)
    )


def never(forest: Forest) -> int:
    """Return a rank that none is above: levels without a test, and missing trees, go left."""
    return int(2**forest.rank_bits - 1)


def level_tests(forest: Forest) -> tuple[np.ndarray, np.ndarray]:
    """Return the column and the threshold's rank of each level's test: int32, shape (T, depth) each."""
    trees, ranks = len(forest.offset) - 1, node_ranks(forest)
    column = np.zeros((trees, forest.depth), np.int32)
    rank = np.full((trees, forest.depth), never(forest), np.int32)
    for level, nodes in enumerate(perfect_levels(forest)[:-1]):
        split = forest.left[nodes] >= 0
        node = nodes[np.arange(trees), np.argmax(split, axis=1)]
        tested = split.any(axis=1)
        column[tested, level], rank[tested, level] = forest.column[node][tested], ranks[node][tested]
    return column, rank


def _columns(workload: Workload) -> int:
    return int(workload["numeric"] + workload["categorical"])
