"""CPU schedules of perfect tree traversal.

The loops are those of `steps.place`, with these stages inside (vectors of rows), each unrolled::

    for tree in together, for register: node = <tests of the first `top_levels` levels>
    for each level below:
        for tree in together, for register:   # independent walks that hide each other's latency
            node[tree, register] = next(node[tree, register])
"""

from __future__ import annotations

from typing import Any

from hbtvm.schedules.cpu.gathers import gathers
from hbtvm.schedules.cpu.steps import (
    SMALL_BATCH,
    common_knobs,
    few_or_many,
    finish,
    is_arm,
    is_wide,
    least_padded,
    lookup_default,
    lookup_is_valid,
    lookup_knob,
    place,
    place_before,
    row_tiles,
    shape_is_valid,
    vector_lanes,
)
from hbtvm.schedules.space import Config, Knob, Space
from hbtvm.schedules.workload import Target, Workload

MOST_PERMUTED = 8  # deepest level for permutes: it has 128 nodes, in eight registers
_WALKED = {4: 1.0, 2: 1.02, 1: 1.06}
"""By vectors of rows that share the loads of a tree's tables: relative time of a vector."""

_SHALLOW = 4  # up to this depth, a tree's tables take a few cache lines


def space(workload: Workload, target: Target) -> Space:
    """Return the knobs for a workload (see `hbtvm.strategies.base.workload_of`) on a CPU target."""

    def valid(config: Config) -> bool:
        together, by_row = int(config["together"]), config["axis"] == "rows"
        # The state of more walks would not fit the registers.
        if int(config["lanes"]) * int(config["vectors"]) * together > 256:
            return False
        if not by_row and together != 1:
            return False
        if config["permute_levels"] and (
            not by_row or config["lanes"] == 1 or int(config["permute_levels"]) <= int(config["top_levels"])
        ):
            return False
        below = depth - max(int(config["permute_levels"]), int(config["top_levels"]))
        if below == 0 and config["node_lookup"] != "scalar":
            return False
        return (
            int(config["tree_tile"]) % together == 0
            and lookup_is_valid(config, "node_lookup", False)
            and lookup_is_valid(config, "column_lookup", not by_row)
            and lookup_is_valid(config, "leaf_lookup", by_row)
            and shape_is_valid(config)
        )

    depth, rows = workload["depth"], int(workload["rows"])
    count = workload["numeric"] + workload["categorical"]
    wide = int(target["vector_bits"]) >= 256 and len(row_tiles(rows, vector_lanes(target, "float32"))) > 1
    permuted: tuple[int, ...] = (4, 5, 6, 7, MOST_PERMUTED) if wide else ()
    if is_arm(target) and workload["dtype"] == "float32" and rows >= SMALL_BATCH:
        permuted = (5, 6, 7)  # the last has 64 nodes, `MAX_BY_BYTES`
    return Space(
        (
            *common_knobs(workload, target),
            Knob("together", (1, 2, 4, 8)),
            Knob("top_levels", tuple(range(1, min(depth, 5) + 1))),
            Knob("permute_levels", (0, *(n for n in permuted if n <= depth))),
            lookup_knob("node_lookup", target, 2**depth, shared=False),
            lookup_knob("column_lookup", target, count, shared=rows <= SMALL_BATCH),
            lookup_knob("leaf_lookup", target, 2**depth * workload["width"], shared=rows > 1),
        ),
        valid,
    )


def default(workload: Workload, target: Target) -> Config:
    """Return a good single-thread configuration for unmeasured workloads."""
    lanes, rows = vector_lanes(target, workload["dtype"])[-1], int(workload["rows"])
    depth, by_row = workload["depth"], rows >= lanes
    # Narrow vectors of trees: assembling values looked up lane by lane is cheap.
    narrow = min(lanes, 8)
    count = workload["numeric"] + workload["categorical"]
    known = space(workload, target)
    levels = next(knob for knob in known.knobs if knob.name == "permute_levels")
    top = min(depth, 4 if by_row else 3)
    # Permutes of wider vectors hold more entries and save more scalar loads, so they pay for more levels.
    most = 5 if is_arm(target) else 2 * (lanes.bit_length() - 1)
    permuted = max(int(n) for n in levels.choices if int(n) <= most)
    common: Config = {
        "lanes": lanes if by_row else narrow,
        "order": "trees",
        "top_levels": top,
        "permute_levels": permuted if by_row and permuted > top else 0,
        "node_lookup": lookup_default(target, 2**depth, False),
        "column_lookup": lookup_default(target, count, not by_row),
        "leaf_lookup": lookup_default(target, 2**depth * workload["width"], by_row),
    }
    fast = gathers(target)
    if fast:
        common |= {name: "gather" for name in ("column_lookup", "leaf_lookup") if common[name] == "scalar"}
    if not by_row:
        if fast:
            narrow = lanes
            common["lanes"] = lanes
            if depth > top:
                common["node_lookup"] = "gather"
        return {
            **common,
            "axis": "trees",
            "row_tile": 1,
            "vectors": 4,
            "tree_tile": 4 * narrow,
            "together": 1,
        }
    vectors, together = 1, 4
    sizes: tuple[int, ...] = (1, 2, 4, 8)
    if rows >= SMALL_BATCH:
        vectors = few_or_many(workload, lanes)
        hidden = fast and not is_wide(workload)  # gathers of several vectors hide each other's latency
        if not (hidden or is_arm(target)):
            vectors = min(vectors, _vectors_of_rows(rows, lanes))
        together = max(1, (4 if vectors > 2 else 8) // vectors)
        if fast and depth > MOST_PERMUTED:
            together = max(2, together)  # lookups below the permutes wait for the one before
        if depth <= _SHALLOW:  # the smaller a tree's tables, the more trees fit the first-level cache
            sizes += (16, 32)
    tile = least_padded(workload["trees"], sizes)
    return {
        **common,
        "axis": "rows",
        "row_tile": vectors * lanes,
        "vectors": vectors,
        "tree_tile": tile,
        "together": min(together, tile),
    }


def _vectors_of_rows(rows: int, lanes: int) -> int:
    """Return the vectors of rows for the least time of a call, padding included."""
    return min(_WALKED, key=lambda vectors: -(-rows // (vectors * lanes)) * vectors * _WALKED[vectors])


def apply(sch: Any, workload: Workload, config: Config) -> None:
    """Schedule the walk's expressions in place (blocks ``walk_<level>``)."""
    depth, top = workload["depth"], int(config["top_levels"])
    placed = place(sch, config, f"walk_{depth}", int(config["together"]), reduces=False)
    unrolled = _unrolled(workload, config)
    levels = [depth, *reversed(range(top, depth))]
    stages = [placed, *(place_before(sch, config, placed, f"walk_{level}") for level in levels[1:])]
    for level, stage in zip(levels, stages, strict=True):
        if stage.tree is not None:
            sch.unroll(stage.tree)
        if level <= unrolled:
            sch.unroll(stage.register)
        sch.vectorize(stage.lane)
    row = 3 if config["axis"] == "trees" else 4
    finish(sch, config, placed, [], [(f"walk_{level}", row) for level in range(top, depth + 1)])


def _unrolled(workload: Workload, config: Config) -> int:
    """Return the deepest level whose registers are unrolled.

    Scalar lookups make much code, which takes long to compile and gains nothing from unrolling: their loads
    hide each other's latency anyway.
    """
    depth = int(workload["depth"])
    return depth if depth <= MOST_PERMUTED else max(int(config["permute_levels"]), int(config["top_levels"]))
