"""Schedules of leaf intervals for 64-bit Arm CPUs.

Two programs, chosen by the knob ``axis``. Vectors of rows::

    for tile of row_tile rows:
        columns, ranks = ...                                  # by columns, in L1
        for tree tile, for row block   (or the other way round: ``order``)
            for tree in tile:
                for split: leaf[row block] = ...              # `vectors` registers of bytes
                sums[row block] += value[tree, leaf]
            scores[row block] += sums

Vectors of trees, a row at a time::

    for row:
        columns, ranks, row_ranks = ...
        for tree tile:                                        # `vectors` registers of bytes
            for split: leaf[tree tile] = ...
            sums[tree tile] += value[leaf, tree tile]
        score = sum(sums)
"""

from __future__ import annotations

from typing import Any

from hbtvm.schedules.cpu.oblivious import COMPARE, place_ranks
from hbtvm.schedules.cpu.sharing import thread_knobs, threads_are_valid
from hbtvm.schedules.cpu.steps import (
    MAX_SUMMED,
    SMALL_BATCH,
    finish,
    lookup_is_valid,
    lookup_knob,
    orders,
    place,
    state_tile,
    vector_lanes,
)
from hbtvm.schedules.space import Config, Knob, Space
from hbtvm.schedules.workload import Target, Workload

BYTE = 8  # bits of ranks
MOST_LEAVES, MOST_COLUMNS = 128, 128  # numbers from 0 on of a signed byte
_NUMBERS = 4  # bytes of the numbers, of which a register has `lanes`
_LOOKED_UP = 64  # most columns whose ranks an instruction looks up
_UNROLLED = (3, 2, 1)  # splits, where their number is a multiple
_LATENCY, _VECTOR = 4, 2
"""Cycles of a split: of the two instructions that wait for the last split's, and of a register's five."""


def byte_lanes(config: Config) -> int:
    """Return the bytes of a register."""
    return int(config["lanes"]) * _NUMBERS


def space(workload: Workload, target: Target) -> Space:
    """Return the knobs for a workload (see `hbtvm.strategies.base.workload_of`) on a CPU target."""

    def valid(config: Config) -> bool:
        by_row = config["axis"] == "rows"
        block = byte_lanes(config) * int(config["vectors"])
        if not threads_are_valid(config) or not lookup_is_valid(config, "leaf_lookup", by_row):
            return False
        if not by_row:
            return config["row_tile"] == 1 and config["tree_tile"] == block and config["order"] == "trees"
        if config["row_tile"] == block and config["order"] != "trees":
            return False  # a single block of rows has no order
        return int(config["row_tile"]) % block == 0 and int(config["tree_tile"]) <= MAX_SUMMED

    rows, lanes = int(workload["rows"]), vector_lanes(target, "int32")
    small = rows <= SMALL_BATCH
    tiles = tuple(n for n in (16, 32, 64, 128, 256, 512) if n >= _NUMBERS * lanes[0] and n < 2 * rows)
    return Space(
        (
            Knob("axis", ("rows", "trees") if small else ("rows",)),
            Knob("row_tile", (1, *tiles)),
            Knob("lanes", lanes),
            Knob("vectors", (1, 2, 4, 8)),
            Knob("tree_tile", (4, 8, 16, 32, 64, 128)),
            Knob("order", orders(rows)),
            Knob("node_unroll", (1, 2, 3, 5)),
            lookup_knob("leaf_lookup", target, workload["leaves"] * workload["width"], shared=rows > 1),
            *thread_knobs(workload),
        ),
        valid,
    )


def default(workload: Workload, target: Target) -> Config:
    """Return a good single-thread configuration for unmeasured workloads."""
    lanes, rows = vector_lanes(target, "int32")[-1], int(workload["rows"])
    wide = _NUMBERS * lanes
    common: Config = {
        "lanes": lanes,
        "order": "trees",
        "node_unroll": next(n for n in _UNROLLED if (workload["leaves"] - 1) % n == 0),
        "leaf_lookup": "scalar",
    }
    # For fewer rows, lookups of a row's ranks take less time than the leaf values of vectors of rows.
    if rows >= SMALL_BATCH:
        return {**common, "axis": "rows", "row_tile": 4 * wide, "vectors": 4, "tree_tile": 8}

    def cost(vectors: int) -> int:
        return -(-int(workload["trees"]) // (vectors * wide)) * max(_LATENCY, _VECTOR * vectors)

    vectors = min((1, 2, 4), key=cost)
    return {**common, "axis": "trees", "row_tile": 1, "vectors": vectors, "tree_tile": vectors * wide}


def pays(workload: Workload) -> bool:
    """Whether this program is the default; trees have to make up for the search for the ranks of columns."""
    columns, trees = workload["numeric"] + workload["categorical"], workload["trees"] * workload["groups"]
    return columns <= min(trees, _LOOKED_UP)


def searched(config: Config) -> Config:
    """Return a configuration with the choices of the search for ranks (`hbtvm.strategies.trees.ranks`)."""
    return {**config, "search_lookup": COMPARE}


def apply(sch: Any, workload: Workload, config: Config) -> None:
    """Schedule the expressions in place (blocks ``ranks``, ``row_ranks``, ``leaf``)."""
    by_tree, vectors = config["axis"] == "trees", int(config["vectors"])
    placed = place(sch, {**config, "vectors": _NUMBERS * vectors}, "leaf")
    split, inner = sch.split(placed.reduction, [None, int(config["node_unroll"])])
    register, lane = sch.split(sch.fuse(placed.register, placed.lane), [None, byte_lanes(config)])
    sch.reorder(split, inner, register, lane)
    sch.unroll(inner)
    sch.unroll(register)
    sch.vectorize(lane)
    leaf = sch.get_sblock("leaf")
    if by_tree:
        state_tile(sch, leaf, "row_ranks", 3, by_row=True)
        row_ranks = sch.get_sblock("row_ranks")
        sch.compute_at(row_ranks, placed.tile, True)
    else:
        state_tile(sch, leaf, "ranks", 4)
    place_ranks(sch, workload, searched(config), placed.tile)
    finish(sch, config, placed, [(leaf, split)], [])
