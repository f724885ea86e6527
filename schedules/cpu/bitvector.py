"""CPU schedules of the bitvector strategy.

Two programs, chosen by the knob ``axis``. Vectors of rows (large batches)::

    for tile of row_tile rows:
        columns[:, :] = ...                              # transposed, in L1
        for tree tile, for row block   (or the other way round: ``order``)
            for tree in tile:
                for node: bits[row block] &= ...         # `vectors` registers of `lanes` rows
                sums[row block] += value[tree, lowest_bit(bits)]
            scores[row block] += sums

Vectors of trees (one row, small batches)::

    for row:
        columns[:] = ...
        for tree tile:                                    # `vectors` registers of `lanes` trees
            for node: bits[tree tile] &= ...
            sums[tree tile] += value[lowest_bit(bits), tree tile]
        score = sum(sums)
"""

from __future__ import annotations

from typing import Any

from hbtvm.schedules.cpu.steps import (
    SMALL_BATCH,
    common_knobs,
    few_or_many,
    finish,
    is_arm,
    lookup_default,
    lookup_is_valid,
    lookup_knob,
    mark,
    place,
    shape_is_valid,
    vector_lanes,
)
from hbtvm.schedules.space import Config, Knob, Space
from hbtvm.schedules.workload import Target, Workload


def space(workload: Workload, target: Target) -> Space:
    """Return the knobs for a workload (see `hbtvm.strategies.base.workload_of`) on a CPU target."""

    def valid(config: Config) -> bool:
        by_row = config["axis"] == "rows"
        if by_row and config.get("column_lookup", "scalar") != "scalar":
            return False  # all rows share a node's column
        return shape_is_valid(config) and lookup_is_valid(config, "leaf_lookup", by_row)

    rows = int(workload["rows"])
    count = workload["numeric"] + workload["categorical"]
    small = count < 2**15
    return Space(
        (
            *common_knobs(workload, target),
            Knob("node_unroll", (1, 2, 3, 5, 8)),
            Knob("index_dtype", ("int16", "int32") if small else ("int32",)),
            lookup_knob("leaf_lookup", target, workload["leaves"] * workload["width"], shared=rows > 1),
            *((lookup_knob("column_lookup", target, count),) if rows <= SMALL_BATCH else ()),
        ),
        valid,
    )


def default(workload: Workload, target: Target) -> Config:
    """Return a good single-thread configuration for unmeasured workloads."""
    lanes = vector_lanes(target, workload["dtype"])[-1]
    rows = int(workload["rows"])
    common: Config = {
        "lanes": lanes,
        "order": "trees",
        "node_unroll": 1,
        "index_dtype": "int32",
        "leaf_lookup": lookup_default(target, workload["leaves"] * workload["width"], rows >= lanes),
    }
    if rows <= SMALL_BATCH:
        count = workload["numeric"] + workload["categorical"]
        common["column_lookup"] = lookup_default(target, count, True) if rows < lanes else "scalar"
    if rows < lanes:
        return {**common, "axis": "trees", "row_tile": 1, "vectors": 1, "tree_tile": lanes}
    vectors = few_or_many(workload, lanes)
    if is_arm(target) and vectors == 4 and rows >= SMALL_BATCH:
        vectors = 8  # a quarter of the registers; as many rows per node as with wider vectors
    return {**common, "axis": "rows", "row_tile": lanes * vectors, "vectors": vectors, "tree_tile": 8}


def apply(sch: Any, workload: Workload, config: Config) -> None:
    """Schedule the bitvector expressions in place (main stage: block ``bits``)."""
    placed = place(sch, config, "bits")
    node, inner = sch.split(placed.reduction, [None, int(config["node_unroll"])])
    sch.reorder(node, inner, placed.register, placed.lane)
    sch.unroll(inner)
    mark(sch, placed.register, placed.lane)
    bits = sch.get_sblock("bits")
    finish(sch, config, placed, [(bits, node)], [("bits", 3 if config["axis"] == "trees" else 4)])
