"""GEMM strategy on CUDA: the product of tests and paths on tensor cores.

A block multiplies one tree's path table by the tests of all its rows, in int8 with int32 sums or in
float16 with float32 sums; both are exact, since a count is at most 255::

    tests[j, r] = column[r, column[t, j]] <= threshold[t, j] ? 1 : 0
    hits[l, r]  = sum over j of path[t, l, j] * tests[j, r]
    leaf[r]     = sum over l of (hits[l, r] == left_counts[t, l] ? l : 0)

Nodes and leaves are padded to whole tiles of the tensor cores.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import te, tirx

from hbtvm.runtime.package.signature import Argument
from hbtvm.schedules.cuda import gemm as gemm_cuda
from hbtvm.schedules.cuda.shape import Shape
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import Workload
from hbtvm.strategies.cuda.grid import Grid, OnGpu, tiled_tables, tree_table
from hbtvm.strategies.trees.forest import Forest
from hbtvm.strategies.trees.gemm import Gemm, tree_tables


class CudaGemm(OnGpu, Gemm):
    """Matrix products; for trees of at most 256 leaves."""

    schedule = gemm_cuda

    def tables(self, forest: Forest, config: Config) -> dict[str, np.ndarray]:
        leaves = int(np.diff(forest.offset).max() + 1) // 2
        product = str(config["product_dtype"])
        by_tree = tree_tables(forest, "int32", "int16", *gemm_cuda.rooms(leaves))
        by_tree["path"] = np.ascontiguousarray(by_tree["path"].transpose(0, 2, 1), product)
        # Sums have another type than the factors; no row reaches the sum of padding leaves.
        left_counts = by_tree["left_counts"].astype(gemm_cuda.SUMS[product])
        left_counts[left_counts > leaves] = gemm_cuda.NEVER
        by_tree["left_counts"] = left_counts
        empty = {"left_counts": gemm_cuda.NEVER}
        return tiled_tables(
            forest, config, {name: (table, empty.get(name, 0)) for name, table in by_tree.items()}
        )

    def arguments(self, workload: Workload, config: Config) -> tuple[Argument, ...]:
        columns, (splits, leaves) = (
            workload["numeric"] + workload["categorical"],
            gemm_cuda.rooms(workload["leaves"]),
        )
        product = str(config["product_dtype"])
        return (
            tree_table(workload, config, "column", "int32", (splits,), "index", below=columns),
            tree_table(workload, config, "threshold", workload["dtype"], (splits,)),
            tree_table(workload, config, "path", product, (leaves, splits), "path", leaf_axis=0),
            tree_table(workload, config, "left_counts", gemm_cuda.SUMS[product], (leaves,)),
            tree_table(workload, config, "value", workload["value_dtype"], (leaves, workload["width"])),
        )

    def function(self, workload: Workload, config: Config) -> Any:
        """Return the tensor expressions as a function ready to be scheduled."""
        grid, shape = Grid(workload, config), Shape.of(config)
        splits, leaves = gemm_cuda.rooms(workload["leaves"])
        product = str(config["product_dtype"])
        sums = gemm_cuda.SUMS[product]
        tables = grid.placeholders(self.arguments(workload, config))
        column, threshold, path, left_counts, value = tables
        outer = (grid.tiles, grid.tree_tiles, grid.groups, shape.tree_tile)
        tests = te.compute(
            (*outer, splits, shape.row_tile),
            lambda i, o, g, t, j, r: tirx.Select(
                grid.stage.columns[i, column[o, g, t, j], r] <= threshold[o, g, t, j],
                tirx.const(1, product),
                tirx.const(0, product),
            ),
            name="tests",
        )
        node = te.reduce_axis((0, splits), "node")
        hits = te.compute(
            (*outer, leaves, shape.row_tile),
            lambda i, o, g, t, k, r: te.sum(
                path[o, g, t, k, node].astype(sums) * tests[i, o, g, t, node, r].astype(sums), axis=node
            ),
            name="hits",
        )
        end = te.reduce_axis((0, leaves), "end")

        def reached(i: Any, o: Any, g: Any, q: Any, y: Any, p: Any, x: Any) -> Any:
            count = hits[i, o, g, q, end, p * shape.row_threads + x]
            here = count == left_counts[o, g, q, end]
            return te.sum(tirx.Select(here, end.var, tirx.const(0, "int32")), axis=end)

        leaf = grid.per_tree(reached, "leaf")

        def leaf_value(i: Any, o: Any, g: Any, q: Any, y: Any, p: Any, x: Any, v: Any) -> Any:
            return value[grid.at(o, g, q, y, leaf[i, o, g, q, y, p, x], v)]

        return grid.function(tables, grid.scores(leaf_value))
