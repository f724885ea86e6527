"""CUDA schedules of the GEMM strategy.

Inside the loops of `schedules.cuda.place`, threads numbered by warp and lane::

    for tree:
        path of the tree to shared memory, by all threads
        tests[node, row] = ...                            # shared memory, by all threads
        for tile of 16 leaves and 16 rows, one for each warp:
            hits[leaf, row] = path[leaf, :] * tests[:, row]          # knob ``engine``
        for row of rows_each: for leaf: leaf_index[row] += hits[leaf, row] == turns[leaf] ? leaf : 0
"""

from __future__ import annotations

from typing import Any

from tvm.s_tir.tensor_intrin.cuda import get_wmma_intrin_group

from schedules.cpu import state_tile
from schedules.cuda import (
    WARP,
    Needs,
    Placed,
    Shape,
    column_bytes,
    common_default,
    common_knobs,
    deal,
    finish,
    fits,
    place,
    scope,
    shape_is_valid,
    stage_table,
    sum_registers,
)
from schedules.loops import Nest
from schedules.space import Columns, Config, Knob, Space

TILE = 16
"""Rows, columns and depth of a product that a warp's tensor cores take at once."""

SUMS = {"int8": "int32", "float16": "float32"}
"""Types of the sums, by that of the products."""

NEVER = 1 << 14
"""More turns than any way has."""

_FIXED = {"tree_threads": 1, "layout": "nodes", "tables": "shared"}


def rooms(leaves: int) -> tuple[int, int]:
    """Nodes and leaves of a tree, filled up to whole tiles."""
    return -(-max(leaves - 1, 1) // TILE) * TILE, -(-leaves // TILE) * TILE


def space(workload: dict[str, Any], target: dict[str, Any]) -> Space:
    """Knobs for a workload (see `hbtvm.strategies.base.workload_of`) on a CUDA target."""

    def valid(config: Config) -> bool:
        return shape_is_valid(workload, target, config) and fits(needs(workload, config), target, config)

    def narrowed(knob: Knob) -> Knob:
        if knob.name in _FIXED:
            return Knob(knob.name, (_FIXED[knob.name],))
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


def needs(workload: dict[str, Any], config: Config) -> Needs:
    """What a block takes."""
    shape = Shape.of(config)
    splits, leaves = rooms(workload["leaves"])
    size = 1 if config["product_dtype"] == "int8" else 2
    products = (leaves + shape.row_tile) * splits * size + leaves * shape.row_tile * 4
    return Needs(
        shape.threads,
        column_bytes(workload, config) + products,
        40 + 2 * shape.rows_each + sum_registers(workload, config),
    )


def default(workload: dict[str, Any], target: dict[str, Any]) -> Config:
    """A good configuration where nothing was measured."""
    chosen: Config = {**common_default(workload, target), **_FIXED}
    knobs = {knob.name: knob.choices for knob in space(workload, target).knobs}
    wanted = (128, 64, WARP)
    rows = next(n for n in wanted if n in knobs["row_threads"] and n in knobs["row_tile"])
    chosen |= {"row_tile": rows, "row_threads": rows, "tree_tile": 1}
    chosen |= {"product_dtype": "int8", "engine": "tensor"}
    for name, choices in (("row_tile", (rows, WARP)), ("columns", ("shared", "global")), ("resident", (4, 2, 1))):
        for choice in choices:
            chosen[name] = choice
            chosen["row_threads"] = chosen["row_tile"]
            if fits(needs(workload, {**chosen, "resident": 1}), target, {**chosen, "resident": 1}):
                if name != "resident" or fits(needs(workload, chosen), target, chosen):
                    break
    return chosen


def apply(sch: Any, workload: dict[str, Any], config: Config) -> None:
    """Schedule the GEMM expressions in place (blocks ``tests``, ``hits``, ``leaf``)."""
    placed = place(sch, config, "leaf", by_warp=True)
    shared = needs(workload, config).shared
    tests, hits, leaf = (sch.get_sblock(name) for name in ("tests", "hits", "leaf"))
    state_tile(sch, tests, "columns", 5)
    sch.set_scope(hits, 0, scope(shared))
    sch.set_scope(tests, 0, scope(shared))
    sch.compute_at(hits, placed.tree, True)
    sch.compute_at(tests, placed.tree, True)
    node, row = sch.get_loops(tests)[-2:]
    deal(sch, config, sch.fuse(node, row), by_warp=True)
    stage_table(sch, config, hits, "path", placed.tree, shared, 4, by_warp=True)
    reductions = [(leaf, placed.reduction)]
    if config["engine"] == "tensor":
        multiply_on_tensor_cores(sch, config, hits, shared)
    else:
        reductions.append((hits, multiply(sch, config, hits)))
    finish(sch, config, placed, reductions, shared, by_warp=True)


def multiply(sch: Any, config: Config, hits: Any) -> Any:
    """Deal the product out to threads, an entry for each; returns its loop over nodes."""
    end, row, node = sch.get_loops(hits)[-3:]
    deal(sch, config, sch.fuse(end, row), by_warp=True)
    return node


def multiply_on_tensor_cores(sch: Any, config: Config, hits: Any, shared: int) -> None:
    """Deal the product out to warps, a tile for each."""
    warps = Shape.of(config).row_threads // WARP
    product = str(config["product_dtype"])
    where = scope(shared)
    group = get_wmma_intrin_group(where, where, product, SUMS[product], False)
    end, row, node = sch.get_loops(hits)[-3:]
    end, ends = sch.split(end, [None, TILE])
    row, rows = sch.split(row, [None, TILE])
    node, nodes = sch.split(node, [None, TILE])
    sch.reorder(end, row, node, ends, rows, nodes)
    _, warp = sch.split(sch.fuse(end, row), [None, warps])
    sch.bind(warp, "threadIdx.y")
    stored = sch.cache_write(hits, 0, "wmma.accumulator")
    sch.reverse_compute_at(stored, warp, True)
    for n, (fragment, load) in enumerate((("wmma.matrix_a", "load_a"), ("wmma.matrix_b", "load_b"))):
        copy = sch.cache_read(hits, n, fragment)
        sch.compute_at(copy, node, True)
        sch.tensorize(sch.get_loops(copy)[-2], group[load])
    sch.tensorize(sch.get_loops(stored)[-2], group["store"])
    init = sch.decompose_reduction(hits, node)
    sch.tensorize(sch.get_loops(init)[-2], group["init"])
    sch.tensorize(ends, group["compute"])


def loops(workload: dict[str, Any], columns: Columns) -> Nest:
    """Describe the programs of a batch of configurations (see `schedules.loops`)."""
    raise NotImplementedError
