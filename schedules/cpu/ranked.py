"""CPU schedules of ranked traversal.

Two programs, chosen by the knob ``axis``. `hbtvm.schedules.cpu.ranked_rows` has that of vectors of rows.
Vectors of trees, several rows at a time::

    for tile of row_tile rows:
        columns, ranks = ...                                  # transposed and back, in L1
        for tree tile, for rows (by `together`)   (or the other way round: ``order``)
            for each level, unrolled:
                for row in together: node[row, trees] = next(node[row, trees])
            sums[row, trees] += value[node]
        score[row] = sum over trees of sums[row, trees]
"""

from __future__ import annotations

from typing import Any

from hbtvm.schedules.cpu import ranked_rows
from hbtvm.schedules.cpu.oblivious import COMPARE, place_ranks
from hbtvm.schedules.cpu.sharing import thread_knobs, threads_are_valid
from hbtvm.schedules.cpu.steps import (
    decompose,
    lookup_default,
    lookup_knob,
    mark,
    orders,
    place_columns,
    state_tile,
    vector_lanes,
    vectorize,
)
from hbtvm.schedules.space import Config, Knob, Space
from hbtvm.schedules.workload import Target, Workload, apart_of


def space(workload: Workload, target: Target) -> Space:
    """Return the knobs for a workload (see `hbtvm.strategies.base.workload_of`) on a CPU target."""

    by_rows = ranked_rows.offers(workload, target)

    def valid(config: Config) -> bool:
        together, row_tile = int(config["together"]), int(config["row_tile"])
        if not threads_are_valid(config):
            return False
        if config["axis"] == "rows":
            return ranked_rows.valid(config, workload, target)
        if by_rows and (
            config["search_permutes"] or config["byte_levels"] or config["search_lookup"] == COMPARE
        ):
            return False
        if config["tree_tile"] != int(config["lanes"]) * int(config["vectors"]) or row_tile % together:
            return False
        if row_tile == together and config["order"] != "trees":
            return False  # a single block of rows has no order
        return together * int(config["vectors"]) <= 16

    rows, lanes = int(workload["rows"]), vector_lanes(target, "int32")
    lanes = lanes[-2:]
    count = workload["numeric"] + workload["categorical"]
    node = lookup_knob("node_lookup", target, 10**6)
    leaf = lookup_knob("leaf_lookup", target, 10**6)
    most, tiles = (ranked_rows.ROW_TILES, (8, 16, 32)) if by_rows else ((), ())
    return Space(
        (
            Knob("axis", ("trees", "rows") if by_rows else ("trees",)),
            Knob("row_tile", tuple(n for n in sorted({1, 4, 8, 16, 32, 64, 128, *most}) if n < 2 * rows)),
            Knob("together", tuple(n for n in (1, 2, 4, 8) if n < 2 * rows)),
            Knob("lanes", lanes),
            Knob("vectors", (1, 2, 4)),
            Knob("tree_tile", tuple(sorted({n * v for n in lanes for v in (1, 2, 4)} | {*tiles}))),
            Knob("order", orders(rows)),
            node,
            lookup_knob("row_lookup", target, count),
            leaf,
            Knob("search_lookup", (*node.choices, COMPARE) if by_rows else node.choices),
            *thread_knobs(workload),
            *(ranked_rows.knobs(workload, target) if by_rows else ()),
        ),
        valid,
    )


def default(workload: Workload, target: Target) -> Config:
    """Return a good single-thread configuration for unmeasured workloads."""
    if ranked_rows.pays(workload, target):
        return ranked_rows.default(workload, target)
    lanes, rows = vector_lanes(target, "int32")[-1], int(workload["rows"])
    count = workload["numeric"] + workload["categorical"]
    row_tile = max(n for n in (1, 4, 8, 16, 32, 64) if n < 2 * rows)
    together = min(row_tile, 4)
    vectors = 1 if row_tile > 1 else 4
    more: Config = {"search_permutes": 0, "byte_levels": 0} if ranked_rows.offers(workload, target) else {}
    return {
        **more,
        "axis": "trees",
        "row_tile": row_tile,
        "together": together,
        "lanes": lanes,
        "vectors": vectors,
        "tree_tile": lanes * vectors,
        "order": "trees",
        "node_lookup": lookup_default(target, 10**6, False),
        "row_lookup": lookup_default(target, count, True),
        "leaf_lookup": lookup_default(target, 10**6, False),
        "search_lookup": lookup_default(target, 10**6, False),
    }


def apply(sch: Any, workload: Workload, config: Config) -> None:
    """Schedule the expressions in place (blocks ``ranks``, ``walk_<level>``)."""
    if config["axis"] == "rows":
        ranked_rows.apply(sch, workload, config)
        return
    lanes, vectors, together = (int(config[name]) for name in ("lanes", "vectors", "together"))
    scores, apart = sch.get_sblock("scores"), apart_of(workload)
    tile = sch.get_loops(scores)[0]
    if apart:
        tile, p, v, r = sch.get_loops(scores)
        o, register, lane = sch.split(p, [None, vectors, lanes])
        around = (tile,)
    else:
        sums = sch.get_sblock("lane_sums")
        sch.compute_at(sums, tile, True)
        g, v, r, t, o = sch.get_loops(sums)[-5:]
        _, register, lane = sch.split(t, [None, vectors, lanes])
        around = (g,)
    block, row = sch.split(r, [None, together])
    outer = (o, block) if config["order"] == "trees" else (block, o)
    sch.reorder(*around, *outer, row, v, register, lane)
    sch.unroll(row)
    mark(sch, register, lane)
    for level in reversed(range(workload["depth"])):
        walk = sch.get_sblock(f"walk_{level}")
        sch.compute_at(walk, outer[1], True)
        trees = sch.get_loops(walk)[-1]
        _, _, own_lane = sch.split(trees, [None, vectors, lanes])
        # Don't unroll rows or registers: it would take long to compile, and gain nothing.
        vectorize(sch, own_lane, lanes)
        state_tile(sch, walk, "ranks", 3, by_row=True)
    place_ranks(sch, workload, config, tile)
    row_tile = int(config["row_tile"])
    place_columns(sch, tile, min(lanes, row_tile))
    if not apart:
        decompose(sch, sums, g, lanes)
