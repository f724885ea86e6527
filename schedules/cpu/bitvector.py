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

from hbtvm.schedules.cpu.gathers import gathers
from hbtvm.schedules.cpu.steps import (
    SMALL_BATCH,
    WIDE,
    common_knobs,
    few_or_many,
    finish,
    is_arm,
    is_wide,
    least_padded,
    lookup_default,
    lookup_is_valid,
    lookup_knob,
    mark,
    place,
    shape_is_valid,
    vector_lanes,
)
from hbtvm.schedules.space import Config, Knob, Space
from hbtvm.schedules.workload import Target, Workload, apart_of

_WIDE_LANES = 16  # numbers in vectors of 512 bits
_FEW_LEAVES = 8  # of trees so small that more of them share a tile

MAX_LEAVES = 64
"""Leaves of the largest tree that is not cut: bits of the longest word."""

MOST_CUT, CUT_DEPTH = 128, 31
"""Leaves and levels up to which trees are cut into pieces: each repeats the splits above its subtrees."""

_CUT_SHALLOW = 10
"""Levels up to which walks of trees of more than `MAX_LEAVES` leaves are faster than tests of pieces."""

_CUT_WIDTH, _CUT_BUSHY = {256: 2, 512: 4}, {256: 4, 512: MOST_CUT}
"""By bits of vectors, outputs of a tree and leaves for each level up to which such tests are faster."""

_FILLED = 1024
"""Rows of a thread from which eight vectors of AVX2 share the loads of nodes: 2% to 5% less time for up to
128 columns, and 2% more for 500. Fewer rows have more padding."""


def in_pieces(leaves: int, depth: int, apart: bool, by_row: bool = True) -> bool:
    """Whether kernels cut trees of a shape into pieces of 32 leaves.

    `apart`: whether trees have outputs of their own, so that a tree's pieces would not be summed.
    `by_row`: whether vectors hold rows.
    """
    return (32 if by_row else MAX_LEAVES) < leaves <= MOST_CUT and depth <= CUT_DEPTH and not apart


def pays(workload: Workload, target: Target) -> bool:
    """Whether tests of all nodes may be faster than walks."""
    if workload["leaves"] <= MAX_LEAVES:
        return True
    bits = int(target["vector_bits"])
    if bits <= 256 and workload["dtype"] == "float64":
        return False
    many = workload["rows"] >= 16 and workload["depth"] > _CUT_SHALLOW
    long = workload["leaves"] <= _CUT_BUSHY.get(bits, 0) * workload["depth"]
    return many and long and workload["width"] <= _CUT_WIDTH.get(bits, 0)


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
    rows, entries = int(workload["rows"]), workload["leaves"] * workload["width"]
    if rows >= lanes and in_pieces(workload["leaves"], workload["depth"], bool(apart_of(workload))):
        entries = 32 * workload["width"]
    common: Config = {
        "lanes": lanes,
        "order": "trees",
        "node_unroll": 1,
        "index_dtype": "int32",
        "leaf_lookup": lookup_default(target, entries, rows >= lanes),
    }
    if rows < lanes:
        return common | _of_few_rows(workload, target, lanes)
    if rows <= SMALL_BATCH:
        common["column_lookup"] = "scalar"
    vectors = few_or_many(workload, lanes)
    if is_arm(target) and vectors == 4 and rows >= SMALL_BATCH:
        vectors = 8  # a quarter of the registers; as many rows per node as with wider vectors
    narrow = lanes == 8 and int(target["vector_bits"]) == 256 and not is_wide(workload)
    if narrow and rows >= _FILLED * int(workload["threads"]):
        vectors = 8
    common |= {"axis": "rows", "row_tile": lanes * vectors, "vectors": vectors, "tree_tile": 8}
    if vectors == 4 and lanes == _WIDE_LANES:
        common |= _of_wide_vectors(workload, lanes)
    return common


def _of_few_rows(workload: Workload, target: Target, lanes: int) -> Config:
    """Return what a default has of its own where lanes are trees."""
    count = workload["numeric"] + workload["categorical"]
    config: Config = {"axis": "trees", "row_tile": 1, "vectors": 1, "tree_tile": lanes}
    column_lookup = lookup_default(target, count, True)
    if gathers(target):
        config |= {"leaf_lookup": "gather", "node_unroll": 5 if workload["leaves"] <= 32 else 8}
        if 16 < count <= 32:  # permutes of two registers
            config["index_dtype"] = "int16"
        column_lookup = column_lookup if column_lookup == "permute" else "gather"
    return {**config, "column_lookup": column_lookup}


def _of_wide_vectors(workload: Workload, lanes: int) -> Config:
    """Return what a default has of its own for many rows in vectors of 512 bits."""
    rows, leaves = int(workload["rows"]), workload["leaves"]
    vectors, unroll = 8, 1
    few = workload["threads"] > 1 and rows < 8 * workload["threads"] * 8 * lanes
    padded = -(-rows // (8 * lanes)) * 8 * lanes
    # Words of 64 bits fill twice the registers, and padding a batch costs the transposition of wide rows.
    long = leaves > 32 and not in_pieces(leaves, workload["depth"], bool(apart_of(workload)))
    if long or workload["numeric"] >= WIDE or few or padded > max(1.05 * rows, rows + 4 * lanes - 1):
        vectors, unroll = 4, 8
    index = "int16" if leaves > 16 and workload["numeric"] + workload["categorical"] < 2**15 else "int32"
    return {
        "row_tile": lanes * vectors,
        "vectors": vectors,
        "tree_tile": least_padded(workload["trees"], (1, 2, 4, 8) if leaves <= _FEW_LEAVES else (1, 2, 4)),
        "node_unroll": unroll,
        "index_dtype": index,
    }


def apply(sch: Any, workload: Workload, config: Config) -> None:
    """Schedule the bitvector expressions in place (main stage: block ``bits``)."""
    placed = place(sch, config, "bits")
    node, inner = sch.split(placed.reduction, [None, int(config["node_unroll"])])
    sch.reorder(node, inner, placed.register, placed.lane)
    sch.unroll(inner)
    mark(sch, placed.register, placed.lane)
    bits = sch.get_sblock("bits")
    finish(sch, config, placed, [(bits, node)], [("bits", 3 if config["axis"] == "trees" else 4)])
