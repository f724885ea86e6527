"""Ranked traversal: perfect trees walked over ranks, in vectors of trees.

A perfect tree traversal (Hummingbird's algorithm 3) whose columns are ranks (see `ranks`). A
node is one word, so a level costs one gather, and one permute if a row's ranks fit registers::

    word[t, n]        = column[t, n] | rank of threshold[t, n] << column bits
    node[l + 1][t, r] = 2 * node[l] + (ranks[r, column of word] > rank of word ? 1 : 0)

Lanes are trees, so a single row takes no longer than a row of a large batch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import tirx

from hbtvm.runtime.package.signature import Argument, table
from hbtvm.schedules.cpu import ranked as ranked_cpu
from hbtvm.schedules.cpu.oblivious import rank_room
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import Workload
from hbtvm.strategies.base import Strategy, spread, tile_trees
from hbtvm.strategies.columns import column_tables
from hbtvm.strategies.intrinsics.lookup import lookup
from hbtvm.strategies.scores import StageBuilder, leaf_rows, leaf_table, tree_table
from hbtvm.strategies.trees.forest import Forest
from hbtvm.strategies.trees.perfect import MAX_DEPTH, perfect_levels, split_table
from hbtvm.strategies.trees.ranked_rows import row_arguments, row_function, row_tables
from hbtvm.strategies.trees.ranks import node_ranks, search_room, search_stage, search_table

_WORD_BITS = 31


class RankedTraversal(Strategy):
    """Walk of perfect trees over ranks: one word for each node."""

    name = "ranked_traversal"
    schedule = ranked_cpu

    def refuse(self, workload: Workload) -> str | None:
        if workload["depth"] == 0:
            return "no tree has a split, and ranked_traversal needs a level to walk"
        if workload["depth"] > MAX_DEPTH:
            return (
                f"trees are up to {workload['depth']} levels deep; ranked_traversal holds at most {MAX_DEPTH}"
            )
        if _column_bits(workload) + workload["rank_bits"] > _WORD_BITS:
            return (
                f"{workload['numeric'] + workload['categorical']} columns with up to "
                f"2**{workload['rank_bits']} thresholds each do not fit ranked_traversal's 32-bit words"
            )
        return None

    def nanoseconds(self, workload: Workload) -> float:
        return float(0.4 * workload["depth"])

    def _shared(self, forest: Forest) -> dict[str, np.ndarray]:
        return column_tables(forest)

    def tables(self, forest: Forest, config: Config) -> dict[str, np.ndarray]:
        searched = {"rank_threshold": search_table(forest, config)}
        if config["axis"] == "rows":
            return {**searched, **row_tables(forest, config)}
        trees, depth = len(forest.offset) - 1, forest.depth
        levels = perfect_levels(forest)
        words = forest.column | node_ranks(forest) << (forest.n_columns - 1).bit_length()
        word = split_table(forest, levels, words.astype(np.int32), 2**depth)
        rows = leaf_rows(2**depth, forest.value_dtype, config)
        value = np.zeros((trees, rows, forest.value.shape[1]), forest.value_dtype)
        value[:, : 2**depth] = forest.value[levels[-1]]
        tiles = tile_trees(forest, int(config["tree_tile"]))
        tables = {"word": word, "value": value}
        return {**searched, **{name: spread(table, tiles, 0, True) for name, table in tables.items()}}

    def arguments(self, workload: Workload, config: Config) -> tuple[Argument, ...]:
        depth, bits, columns = (
            workload["depth"],
            _column_bits(workload),
            workload["numeric"] + workload["categorical"],
        )
        ranks = table(
            "rank_threshold", workload["dtype"], search_room(columns, workload["rank_bits"], config)
        )
        if config["axis"] == "rows":
            return ranks, *row_arguments(workload, config)
        return (
            ranks,
            tree_table(
                workload, config, "word", "int32", (2**depth,), "ranked_word", bits=bits, below=columns
            ),
            leaf_table(workload, config, 2**depth),
        )

    def function(self, workload: Workload, config: Config) -> Any:
        """Return the tensor expressions as a function ready to be scheduled."""
        count = workload["numeric"] + workload["categorical"]
        by_row = config["axis"] == "rows"
        room = rank_room(count, workload["rank_bits"])[0]
        builder = StageBuilder(workload, config, room=0 if by_row else room)
        tables = builder.placeholders(self.arguments(workload, config))
        if by_row:
            return row_function(workload, config, builder, tables)
        depth, bits, method = workload["depth"], _column_bits(workload), str(config["row_lookup"])
        searched, word, value = tables
        ranks = search_stage(workload, config, builder.stage.columns, searched, "int32", 0)

        def step(level: int, node: Any) -> Any:
            run = range(2**level, 2 ** (level + 1))

            def next_node(i: Any, o: Any, g: Any, t: Any, r: Any) -> Any:
                if node is None:
                    here, w = tirx.const(0, "int32"), word[builder.at(o, g, t, 1)]
                else:
                    here = builder.read(node, i, o, g, t, r)
                    w = builder.entry(word, o, g, t, run, here, str(config["node_lookup"]))
                rank = lookup(ranks[i, r, 0], w & (2**bits - 1), room, method)
                above = tirx.Select(rank > (w >> bits), tirx.const(1, "int32"), tirx.const(0, "int32"))
                return here * 2 + above

            return builder.per_tree(next_node, f"walk_{level}")

        node = None
        for level in range(depth):
            node = step(level, node)

        def leaf_value(i: Any, o: Any, g: Any, t: Any, r: Any, v: Any) -> Any:
            return builder.leaf_value(value, o, g, t, builder.read(node, i, o, g, t, r), v)

        return builder.function(tables, builder.scores(leaf_value))


def _column_bits(workload: Workload) -> int:
    return int(workload["numeric"] + workload["categorical"] - 1).bit_length()
