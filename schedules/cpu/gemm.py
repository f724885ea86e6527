"""CPU schedules of the GEMM strategy; vectors of rows only.

Inside the loops of `steps.place`::

    for tree:
        for node: tests[node, rows] = ...                     # whole tree, stays in L1
        for leaf block of `leaf_tile`:
            for node, for leaf in block: hits[leaf, rows] += tests[node, rows] * path[node, leaf]
            for leaf in block: leaf_index[rows] += hits[leaf] == turns[leaf] ? leaf : 0
"""

from __future__ import annotations

from typing import Any

from hbtvm.schedules.cpu.sharing import thread_knobs
from hbtvm.schedules.cpu.steps import (
    MAX_SUMMED,
    finish,
    lookup_default,
    lookup_is_valid,
    lookup_knob,
    mark,
    orders,
    place,
    row_tiles,
    shape_is_valid,
    vector_lanes,
)
from hbtvm.schedules.space import Config, Knob, Space
from hbtvm.schedules.workload import Target, Workload


def space(workload: Workload, target: Target) -> Space:
    """Return the knobs for a workload (see `hbtvm.strategies.base.workload_of`) on a CPU target."""
    lanes = vector_lanes(target, workload["dtype"])
    widest = lanes[-1]
    # int8 holds leaf numbers and counts of left turns up to 127, with four times as many lanes.
    small = workload["leaves"] <= 127
    dtypes = ("int8", "int16", "float32") if small else ("int16", "float32")

    def valid(config: Config) -> bool:
        wide = int(config["lanes"]) > widest
        if wide and config["product_dtype"] == "float32":
            return False
        return shape_is_valid(config) and lookup_is_valid(config, "leaf_lookup", True)

    rows = int(workload["rows"])
    wide_lanes = tuple(n for n in (*lanes, 2 * widest, 4 * widest) if n < 2 * rows)
    return Space(
        (
            Knob("axis", ("rows",)),
            Knob("row_tile", row_tiles(rows, lanes)),
            Knob("lanes", (1, *wide_lanes) if rows < 2 * lanes[0] else wide_lanes),
            Knob("vectors", (1, 2, 4)),
            Knob("tree_tile", tuple(n for n in (1, 2, 4, 8, 16, 32) if n <= MAX_SUMMED)),
            Knob("order", orders(rows)),
            Knob("leaf_tile", (1, 2, 4, 8)),
            Knob("product_dtype", dtypes),
            Knob("index_dtype", ("int32",)),
            lookup_knob("leaf_lookup", target, workload["leaves"] * workload["width"])
            if wide_lanes
            else Knob("leaf_lookup", ("scalar",)),
            *thread_knobs(workload),
        ),
        valid,
    )


def default(workload: Workload, target: Target) -> Config:
    """Return a good single-thread configuration for unmeasured workloads."""
    widest = vector_lanes(target, workload["dtype"])[-1]
    small = workload["leaves"] <= 127
    wanted = 4 * widest if small else 2 * widest
    lanes = max((n for n in (1, 4, 8, 16, 32, 64) if n <= wanted and n < 2 * workload["rows"]), default=1)
    if lanes < vector_lanes(target, workload["dtype"])[0]:
        lanes = 1
    return {
        "axis": "rows",
        "row_tile": lanes,
        "lanes": lanes,
        "vectors": 1,
        "tree_tile": 8,
        "order": "trees",
        "leaf_tile": 4,
        "product_dtype": "int8" if small else "int16",
        "index_dtype": "int32",
        "leaf_lookup": lookup_default(target, workload["leaves"] * workload["width"], True)
        if lanes > 1
        else "scalar",
    }


def apply(sch: Any, workload: Workload, config: Config) -> None:
    """Schedule the GEMM expressions in place (blocks ``tests``, ``hits``, ``leaf``)."""
    lanes, vectors, leaf_tile = (int(config[k]) for k in ("lanes", "vectors", "leaf_tile"))
    tests, hits, leaf = (sch.get_sblock(name) for name in ("tests", "hits", "leaf"))
    placed = place(sch, config, "leaf")
    leaves, inner = sch.split(placed.reduction, [None, leaf_tile])
    sch.reorder(leaves, inner, placed.register, placed.lane)
    sch.unroll(inner)
    mark(sch, placed.register, placed.lane)

    sch.compute_at(hits, leaves, True)
    leaf_loop, rows, node = sch.get_loops(hits)[-3:]
    _, register, lane = sch.split(rows, [None, vectors, lanes])
    sch.reorder(node, leaf_loop, register, lane)
    sch.unroll(leaf_loop)
    mark(sch, register, lane)

    # A tree's tests are computed outside the loop over its leaves.
    around = sch.get_loops(leaf)
    sch.compute_at(
        tests, around[[sch.get(loop).loop_var for loop in around].index(sch.get(leaves).loop_var) - 1], True
    )
    _, register, lane = sch.split(sch.get_loops(tests)[-1], [None, vectors, lanes])
    mark(sch, register, lane)
    finish(sch, config, placed, [(hits, node), (leaf, leaves)], [("tests", 5)])
