"""CPU schedules of the tree walks (TreeTraversal and PerfectTreeTraversal).

The loops are those of `cpu.place`, with this main stage inside (vectors of rows)::

    for level:                      # unrolled by `level_unroll`
        for tree in together, for register:   # independent walks that hide each other's latency
            node[tree, register] = next(node[tree, register])
"""

from __future__ import annotations

from typing import Any

import numpy as np

from schedules.cpu import (
    SMALL_BATCH,
    common_knobs,
    finish,
    mark,
    place,
    shape_is_valid,
    thread_default,
    vector_lanes,
)
from schedules.cpu_loops import column_statement, surroundings
from schedules.loops import UNROLLED, VECTORIZED, Access, Loop, Nest, Statement
from schedules.space import Columns, Config, Knob, Space


def space(workload: dict[str, Any], target: dict[str, Any]) -> Space:
    """Knobs for a workload (see `hbtvm.strategies.base.workload_of`) on a CPU target."""

    def valid(config: Config) -> bool:
        together = int(config["together"])
        # Beyond this many walks at once their state no longer fits the registers.
        if int(config["lanes"]) * int(config["vectors"]) * together > 256:
            return False
        if config["axis"] == "trees" and together != 1:
            return False
        return int(config["tree_tile"]) % together == 0 and shape_is_valid(config)

    small = max(workload["numeric"] + workload["categorical"], workload["nodes"]) < 2**15
    return Space(
        (
            *common_knobs(workload, target),
            Knob("together", (1, 2, 4, 8)),
            Knob("level_unroll", (1, 2, 4)),
            Knob("index_dtype", ("int16", "int32") if small else ("int32",)),
        ),
        valid,
    )


def default(workload: dict[str, Any], target: dict[str, Any]) -> Config:
    """A good configuration where nothing was measured."""
    lanes = vector_lanes(target, workload["dtype"])[-1]
    common: Config = {
        **thread_default(workload),
        "lanes": lanes,
        "order": "trees",
        "level_unroll": 1,
        "index_dtype": "int32",
        "axis": "rows",
    }
    if workload["rows"] >= SMALL_BATCH:
        return {**common, "row_tile": 4 * lanes, "vectors": 2, "tree_tile": 8, "together": 2}
    if workload["rows"] >= lanes:
        return {**common, "row_tile": lanes, "vectors": 1, "tree_tile": 8, "together": 4}
    return {**common, "row_tile": 1, "lanes": 1, "vectors": 1, "tree_tile": 8, "together": 8}


def apply(sch: Any, workload: dict[str, Any], config: Config) -> None:
    """Schedule the walk's expressions in place (main stage: block ``walk``)."""
    placed = place(sch, config, "walk", int(config["together"]))
    level, inner = sch.split(placed.reduction, [None, int(config["level_unroll"])])
    if placed.tree is None:
        sch.reorder(level, inner, placed.register, placed.lane)
    else:
        sch.reorder(level, inner, placed.tree, placed.register, placed.lane)
        sch.unroll(placed.tree)
    sch.unroll(inner)
    mark(sch, placed.register, placed.lane)
    walk = sch.get_sblock("walk")
    finish(sch, workload, config, placed, [(walk, level)], ("walk", 3 if config["axis"] == "trees" else 4))


def loops(workload: dict[str, Any], columns: Columns, perfect: bool) -> Nest:
    """Describe the programs of a batch of configurations (see `schedules.loops`)."""
    around = surroundings(workload, columns, columns["together"])
    nodes = 2 ** workload["depth"] - 1 if perfect else workload["nodes"]
    index_bytes = np.where(columns["index_dtype"] == "int16", 2, 4)
    unroll = columns["level_unroll"]
    levels = -(-max(workload["depth"], 1) // unroll)

    def node_table(size: Any) -> Access:
        return Access("table", size, around.table_strides(nodes, (0, 0, nodes, 0)), gather=True, span=nodes)

    step = Statement(
        (
            *around.loops,
            Loop(levels),
            Loop(unroll, UNROLLED),
            Loop(columns["together"], UNROLLED),
            Loop(columns["vectors"], UNROLLED),
            Loop(columns["lanes"], VECTORIZED),
        ),
        {"compare": 1, "select": 1, "add": 1 + perfect},
        (
            node_table(index_bytes),
            node_table(around.x_bytes),
            *(() if perfect else (node_table(index_bytes),)),
            Access(
                "scratch",
                around.x_bytes,
                around.row_strides((0, 0, 0)),
                gather=True,
                span=around.tile_columns,
            ),
        ),
        lane_bytes=around.x_bytes,
    )
    return (column_statement(workload, columns), step, around.lookup(workload["leaves"], 1))
