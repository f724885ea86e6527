"""Perfect tree traversal on CUDA: a walk from the root with one load per node.

Hummingbird's algorithm 3 as a reduction over levels: within a tree's table, whose entry 1 is the root,
the children of node n are nodes 2 * n and 2 * n + 1::

    node[t, r]  = reduction over levels from 1:
        next(n) = 2 * n + (column[r, column[t, n]] <= threshold[t, n] ? 0 : 1)
    score[r]    = sum over trees t of value[t, node[t, r] - 2 ** depth]
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import te, tirx

from hbtvm.runtime.package.signature import Argument
from hbtvm.schedules.cuda import perfect as perfect_cuda
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import Workload
from hbtvm.strategies.cuda import packed_nodes
from hbtvm.strategies.cuda.grid import Grid, OnGpu, tiled_tables, tree_table
from hbtvm.strategies.trees.forest import Forest
from hbtvm.strategies.trees.perfect import PerfectTreeTraversal, perfect_levels


class CudaPerfectTreeTraversal(OnGpu, PerfectTreeTraversal):
    """Walk over trees padded to perfect trees: children need no table."""

    schedule = perfect_cuda

    def tables(self, forest: Forest, config: Config) -> dict[str, np.ndarray]:
        levels = perfect_levels(forest)
        above = np.concatenate([levels[0], *levels[:-1]], axis=1)  # entry 0 is never read
        split = forest.left[above] >= 0
        # Below a leaf both children have the same value, so any threshold is right.
        threshold = np.where(split, forest.threshold[above], 0).astype(forest.dtype)
        node = packed_nodes.pack(threshold, np.where(split, forest.column[above], 0))
        return tiled_tables(forest, config, {"node": (node, 0), "value": (forest.value[levels[-1]], 0)})

    def arguments(self, workload: Workload, config: Config) -> tuple[Argument, ...]:
        nodes, columns = 2 ** workload["depth"], workload["numeric"] + workload["categorical"]
        word, values = (nodes, packed_nodes.width(workload["dtype"])), (nodes, workload["width"])
        # Words of a node lie next to each other, or next to those of neighbouring trees.
        inner = int(config["layout"] == "trees")
        return (
            tree_table(
                workload, config, "node", "int64", word, "node_word", below=columns, trees_inner=inner
            ),
            tree_table(workload, config, "value", workload["value_dtype"], values),
        )

    def function(self, workload: Workload, config: Config) -> Any:
        """Return the tensor expressions as a function ready to be scheduled."""
        grid = Grid(workload, config)
        depth, dtype = workload["depth"], workload["dtype"]
        tables = grid.placeholders(self.arguments(workload, config))
        node, value = tables
        level = te.reduce_axis((0, depth), "level")

        def walk(i: Any, o: Any, g: Any, q: Any, y: Any, p: Any, x: Any) -> Any:
            def step(here: Any, _: Any) -> Any:
                threshold, column = packed_nodes.unpack(lambda n: node[grid.at(o, g, q, y, here, n)], dtype)
                left = grid.column(i, column.astype("int32"), p, x) <= threshold
                return here * 2 + tirx.Select(left, tirx.const(0, "int32"), tirx.const(1, "int32"))

            descend = te.comm_reducer(step, lambda t: tirx.const(1, t), name="descend")
            # The reduction ignores its operand; TVM finds the tensors that it depends on only there.
            return descend(grid.column(i, 0, p, x).astype("int32"), axis=level)

        reached = grid.per_tree(walk, "walk")

        def leaf_value(i: Any, o: Any, g: Any, q: Any, y: Any, p: Any, x: Any, v: Any) -> Any:
            leaf = reached[i, o, g, q, y, p, x] - 2**depth
            return value[grid.at(o, g, q, y, leaf, v)]

        return grid.function(tables, grid.scores(leaf_value))
