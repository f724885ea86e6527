"""Bitvector strategy on CUDA: a thread ANDs the masks of its trees' nodes, for each of its rows.

Threads of a warp with the same tree test the same node, so a warp reads a table's entry once, and
`node_vector` nodes by one instruction. Neighbouring rows' values of a column are adjacent.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import te, tirx

from hbtvm.runtime.package.signature import Argument
from hbtvm.schedules.cpu.bitvector import MAX_LEAVES
from hbtvm.schedules.cuda import bitvector as bitvector_cuda
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import Workload
from hbtvm.strategies.cuda.grid import Grid, OnGpu, tiled_tables, tree_table
from hbtvm.strategies.trees.bitvector import (
    EMPTY,
    Bitvector,
    more_leaves,
    node_count,
    table_leaves,
    tree_tables,
    word_bits,
)
from hbtvm.strategies.trees.forest import Forest


class CudaBitvector(OnGpu, Bitvector):
    """AND of node masks; for trees of at most 64 leaves."""

    schedule = bitvector_cuda

    def refuse(self, workload: Workload) -> str | None:
        return more_leaves(workload, MAX_LEAVES)

    def tables(self, forest: Forest, config: Config) -> dict[str, np.ndarray]:
        leaves = table_leaves(int(np.diff(forest.offset).max() + 1) // 2)
        tables = tree_tables(forest, "int32", leaves, int(config["node_vector"]))
        return tiled_tables(forest, config, {name: (table, EMPTY[name]) for name, table in tables.items()})

    def arguments(self, workload: Workload, config: Config) -> tuple[Argument, ...]:
        leaves, columns = workload["leaves"], workload["numeric"] + workload["categorical"]
        splits, ends = (node_count(leaves, int(config["node_vector"])),), table_leaves(leaves)
        word, values = f"int{word_bits(leaves)}", (ends, workload["width"])
        return (
            tree_table(workload, config, "column", "int32", splits, "index", below=columns),
            tree_table(workload, config, "threshold", workload["dtype"], splits),
            tree_table(workload, config, "mask", word, splits, "mask", leaves=ends),
            tree_table(workload, config, "value", workload["value_dtype"], values),
        )

    def function(self, workload: Workload, config: Config) -> Any:
        """Return the tensor expressions as a function ready to be scheduled."""
        grid = Grid(workload, config)
        leaves, bits = workload["leaves"], word_bits(workload["leaves"])
        word = f"int{bits}"
        splits = node_count(leaves, int(config["node_vector"]))
        tables = grid.placeholders(self.arguments(workload, config))
        column, threshold, mask, value = tables
        both = te.comm_reducer(lambda a, b: a & b, lambda t: tirx.const(-1, t), name="both")
        node = te.reduce_axis((0, splits), "node")

        def survivors(i: Any, o: Any, g: Any, q: Any, y: Any, p: Any, x: Any) -> Any:
            at = grid.at(o, g, q, y, node)
            test = grid.column(i, column[at], p, x) <= threshold[at]
            return both(tirx.Select(test, tirx.const(-1, word), mask[at]), axis=node)

        survive = grid.per_tree(survivors, "bits")

        def leaf_value(i: Any, o: Any, g: Any, q: Any, y: Any, p: Any, x: Any, v: Any) -> Any:
            b = survive[i, o, g, q, y, p, x]
            below = ~b & (b - tirx.const(1, word))
            # CUDA's population count takes unsigned words only.
            leaf = tirx.popcount(below.astype(f"uint{bits}")).astype("int32")
            return value[grid.at(o, g, q, y, leaf, v)]

        return grid.function(tables, grid.scores(leaf_value))
