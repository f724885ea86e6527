"""CPU schedules of tree traversal.

The loops are those of `cpu.place`, with this main stage inside (vectors of rows)::

    for level:                      # unrolled by `level_unroll`
        for tree in together, for register:   # independent walks that hide each other's latency
            node[tree, register] = next(node[tree, register])
"""

from __future__ import annotations

from typing import Any

from schedules.cpu import (
    SMALL_BATCH,
    common_knobs,
    finish,
    lookup_default,
    lookup_is_valid,
    lookup_knob,
    mark,
    place,
    shape_is_valid,
    thread_default,
    vector_lanes,
)
from schedules.cpu_loops import add_operations, column_statement, lookup_operations, surroundings
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
        by_row = config["axis"] == "rows"
        return (
            int(config["tree_tile"]) % together == 0
            and lookup_is_valid(config, "node_lookup", by_row)
            and lookup_is_valid(config, "column_lookup", not by_row)
            and lookup_is_valid(config, "leaf_lookup", by_row)
            and shape_is_valid(config)
        )

    rows, count = int(workload["rows"]), workload["numeric"] + workload["categorical"]
    return Space(
        (
            *common_knobs(workload, target),
            Knob("together", (1, 2, 4, 8)),
            Knob("level_unroll", (1, 2, 4)),
            lookup_knob("node_lookup", target, workload["nodes"], shared=False),
            lookup_knob("column_lookup", target, count, shared=rows <= SMALL_BATCH),
            lookup_knob("leaf_lookup", target, workload["nodes"] * workload["width"], shared=rows > 1),
        ),
        valid,
    )


def default(workload: dict[str, Any], target: dict[str, Any]) -> Config:
    """A good configuration where nothing was measured."""
    lanes = vector_lanes(target, workload["dtype"])[-1]
    count = workload["numeric"] + workload["categorical"]
    by_row = workload["rows"] >= lanes
    common: Config = {
        **thread_default(workload),
        "lanes": lanes,
        "order": "trees",
        "level_unroll": 1,
        "axis": "rows" if by_row else "trees",
        "node_lookup": lookup_default(target, workload["nodes"], False),
        "column_lookup": lookup_default(target, count, not by_row),
        "leaf_lookup": lookup_default(target, workload["nodes"] * workload["width"], by_row),
    }
    if workload["rows"] >= SMALL_BATCH:
        return {**common, "row_tile": 4 * lanes, "vectors": 2, "tree_tile": 8, "together": 2}
    if workload["rows"] >= lanes:
        return {**common, "row_tile": lanes, "vectors": 1, "tree_tile": 8, "together": 4}
    return {**common, "row_tile": 1, "vectors": 2, "tree_tile": 2 * lanes, "together": 1}


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
    finish(sch, config, placed, [(walk, level)], [("walk", 3 if config["axis"] == "trees" else 4)])


def loops(workload: dict[str, Any], columns: Columns) -> Nest:
    """Describe the programs of a batch of configurations (see `schedules.loops`)."""
    around = surroundings(workload, columns, columns["together"])
    nodes = workload["nodes"]
    fetched = (
        lookup_operations(columns["node_lookup"], nodes),
        lookup_operations(columns["column_lookup"], workload["numeric"] + workload["categorical"]),
    )
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
        add_operations({"compare": 1, "bit": 2, "add": 1}, fetched[0], fetched[0], fetched[1]),
        (
            node_table(4),
            node_table(around.x_bytes),
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
    return (column_statement(workload, columns), step, around.lookup(nodes, 0))
