"""CUDA schedules of the GEMM strategy.

Inside the loops of `hbtvm.schedules.cuda.steps.place`, threads numbered by warp and lane::

    for tree:
        path of the tree to shared memory, by all threads
        tests[node, row] = ...                            # shared memory, by all threads
        hits[leaf, row] = path[leaf, :] * tests[:, row]   # shared memory; knob ``engine``: an entry for each
                                                          # thread, or a tile of 16 x 16 for each warp
        for row of rows_each: for leaf: leaf_index[row] += hits[leaf, row] == turns[leaf] ? leaf : 0
"""

from __future__ import annotations

from typing import Any

from hbtvm.schedules.cpu.steps import state_tile
from hbtvm.schedules.cuda.shape import PREFETCH, WARP, Shape, staged_trees
from hbtvm.schedules.cuda.space import (
    Needs,
    aligned,
    column_bytes,
    common_default,
    common_knobs,
    fits,
    settle_blocks,
    shape_is_valid,
    sum_registers,
)
from hbtvm.schedules.cuda.steps import distribute, finish, place, scope, stage_table
from hbtvm.schedules.space import Config, Knob, Space
from hbtvm.schedules.workload import Target, Workload

TILE = 16  # rows, columns and depth of a product on a warp's tensor cores
SUMS = {"int8": "int32", "float16": "float32"}  # type of the sums by type of the factors

TENSOR = "hbtvm.tensor"
"""Annotation of the outer of two loops over a tile of sums, for tensor cores; its value: the tile's rows."""

NEVER = 1 << 14  # more left turns than any path has; matches no leaf

_FIXED: Config = {"tree_threads": 1, "layout": "nodes"}


def rooms(leaves: int) -> tuple[int, int]:
    """Return the nodes and leaves of a tree, padded to whole tiles."""
    return -(-max(leaves - 1, 1) // TILE) * TILE, -(-leaves // TILE) * TILE


def space(workload: Workload, target: Target) -> Space:
    """Return the knobs for a workload (see `hbtvm.strategies.base.workload_of`) on a CUDA target."""

    def valid(config: Config) -> bool:
        return shape_is_valid(workload, target, config) and fits(needs(workload, config), target, config)

    def narrowed(knob: Knob) -> Knob:
        if knob.name in _FIXED:
            return Knob(knob.name, (_FIXED[knob.name],))
        if knob.name == "tables":
            # A block multiplies one tree at a time, in the memory that the next tree's path needs.
            return Knob(
                knob.name, tuple(choice for choice in knob.choices if choice not in ("global", PREFETCH))
            )
        if knob.name in ("row_tile", "row_threads"):
            whole = tuple(n for n in knob.choices if int(n) >= WARP)
            return Knob(knob.name, whole or (WARP,))
        return knob

    return Space(
        (
            *map(narrowed, common_knobs(workload, target)),
            Knob("product_dtype", ("int8", "float16")),
            Knob("engine", ("plain", "tensor")),
        ),
        valid,
    )


def needs(workload: Workload, config: Config) -> Needs:
    """Return the resources of a block of threads."""
    shape = Shape.of(config)
    splits, leaves = rooms(workload["leaves"])
    size = 1 if config["product_dtype"] == "int8" else 2
    # One tree of a tile at a time.
    paths = staged_trees(workload, config) if config["tables"] == "kept" else 1
    sizes = (paths * leaves * splits * size, splits * shape.row_tile * size, leaves * shape.row_tile * 4)
    products = sum(map(aligned, sizes))
    return Needs(
        shape.threads,
        column_bytes(workload, config) + products,
        40 + 2 * shape.rows_each + sum_registers(workload, config),
    )


def default(workload: Workload, target: Target) -> Config:
    """Return a good configuration for unmeasured workloads."""
    chosen = common_default(workload, target, full=False)
    for rows in (128, 64, WARP):
        shape: Config = {"row_tile": rows, "row_threads": rows, "tree_tile": 1, "tables": "shared"}
        chosen = {**chosen, **_FIXED, **shape, "product_dtype": "int8", "engine": "tensor"}
        chosen = settle_blocks(chosen, target, lambda config: needs(workload, config))
        if space(workload, target).contains(chosen):
            return chosen
    return chosen


def apply(sch: Any, workload: Workload, config: Config) -> None:
    """Schedule the GEMM expressions in place (blocks ``tests``, ``hits``, ``leaf``)."""
    placed = place(sch, workload, config, "leaf", by_warp=True)
    shared = needs(workload, config).shared
    tests, hits, leaf = (sch.get_sblock(name) for name in ("tests", "hits", "leaf"))
    state_tile(sch, tests, "columns", 5)
    sch.set_scope(hits, 0, scope(shared))
    sch.set_scope(tests, 0, scope(shared))
    sch.compute_at(hits, placed.tree, True)
    sch.compute_at(tests, placed.tree, True)
    node, row = sch.get_loops(tests)[-2:]
    distribute(sch, config, sch.fuse(node, row), by_warp=True)
    stage_table(sch, config, hits, "path", placed, shared, 4, by_warp=True)
    node = (on_tensor_cores if config["engine"] == "tensor" else by_threads)(sch, config, hits)
    finish(sch, config, placed, [(leaf, placed.reduction), (hits, node)], shared, by_warp=True)


def by_threads(sch: Any, config: Config, hits: Any) -> Any:
    """Distribute the product over threads, an entry for each; return its loop over nodes."""
    end, row, node = sch.get_loops(hits)[-3:]
    distribute(sch, config, sch.fuse(end, row), by_warp=True)
    return node


def on_tensor_cores(sch: Any, config: Config, hits: Any) -> Any:
    """Distribute the product over warps, a tile for each; return its loop over nodes."""
    shape = Shape.of(config)
    end, row, node = sch.get_loops(hits)[-3:]
    end, ends = sch.split(end, [None, TILE])
    row, rows = sch.split(row, [None, TILE])
    sch.reorder(end, row, ends, rows, node)
    _, warp = sch.split(sch.fuse(end, row), [None, shape.row_threads // WARP])
    sch.bind(warp, "threadIdx.y")
    sch.annotate(ends, TENSOR, shape.row_tile)
    return node
