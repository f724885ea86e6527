"""CPU schedules of tree traversal.

The loops are those of `steps.place`, with this main stage inside::

    until all walks have arrived:
        for level:                      # `level_unroll` of them, unrolled
            for tree in together, for register:   # independent walks that hide each other's latency
                slot[tree, register] = next(slot[tree, register])

A register is a vector of rows or trees, or a scalar: if a CPU gathers no faster than it loads, scalar walks
save the instructions that take vectors apart. More scalars than fit the registers are walked by a queue: all
rows of a tile take a step before any takes the next, and prefetch what that reads
(`hbtvm.compiler.lowering.levels`).
"""

from __future__ import annotations

import math
from typing import Any

from hbtvm.schedules.cpu.gathers import gathers
from hbtvm.schedules.cpu.sharing import FAR_BYTES, thread_knobs, threads_are_valid
from hbtvm.schedules.cpu.steps import (
    SMALL_BATCH,
    finish,
    mark,
    orders,
    place,
    row_tiles,
    state_tile,
    vector_lanes,
)
from hbtvm.schedules.space import Config, Knob, Space
from hbtvm.schedules.workload import Target, Workload, apart_of

EARLY_EXIT = "hbtvm.ends"
"""Annotation of the loop over levels, which ends when all walks have arrived; its value: the lanes."""

NEXT_TREE = "hbtvm.next_tree"
"""Annotation of a loop over blocks of rows that all walk one tree; its value: the rows of a block."""

QUEUE = "hbtvm.queue"
"""Annotation of the loop over levels, which walks a tile's rows with a queue; its value: levels before it."""

BLOCKS = "hbtvm.blocks"
"""The same for more rows, which walk in blocks of a few before the queue and in it."""

WALKS = 16  # rows of a block that walks side by side, with slots in registers

_TILE_BYTES = 1 << 20
"""Largest row tile in bytes; a larger one leaves no room for trees in the second-level cache."""

_ALONE = 8  # trees that walk side by side in a row tile of a single row
_DEEP = 12  # depth from which a tree is too large to reload for every few rows
_GATHERED = 9  # depth from which trees are walked by gathers on CPUs where these are fast
_NODES_IN_L1, _NODE_BYTES = 4096, 8

_QUEUED = 248
"""Most rows of a queue: TVM keeps arrays below 1 KB on the stack."""

_FIRST = 0.7  # pairs of levels before a queue of blocks, over those of a full tree of as many leaves
_NODES_PER_ROW = 8  # nodes of a tree for each row from which rows touch a part of it only
_MOST_ROWS = 2048  # of a tile of deep trees


def space(workload: Workload, target: Target) -> Space:
    """Return the knobs for a workload (see `hbtvm.strategies.base.workload_of`) on a CPU target."""

    def valid(config: Config) -> bool:
        lanes, vectors, together = (int(config[name]) for name in ("lanes", "vectors", "together"))
        row_tile, tree_tile = int(config["row_tile"]), int(config["tree_tile"])
        block = lanes * vectors
        if not threads_are_valid(config):
            return False
        # The state of more walks does not fit the registers.
        if vectors * together > 16:
            return by_queue(config) and fits(config) and (vectors <= _QUEUED or workload["groups"] == 1)
        if lanes == 1 and config["lookup"] != "scalar":
            return False
        if config["axis"] == "trees":
            if block == 1:
                return False  # one tree at a time: the same program as with the other axis
            return row_tile == 1 and tree_tile == block and together == 1 and config["order"] == "trees"
        if row_tile == block and config["order"] != "trees":
            return False  # a single block of rows has no order
        return row_tile % block == 0 and tree_tile % together == 0 and tree_tile <= 32 and fits(config)

    def fits(config: Config) -> bool:
        return int(config["row_tile"]) == 1 or _tile_bytes(workload, int(config["row_tile"])) <= _TILE_BYTES

    rows, lanes = int(workload["rows"]), vector_lanes(target, workload["dtype"])
    wide = int(target["vector_bits"]) >= 256
    large = tuple(n for n in (512, 1024, 2048) if n < 2 * rows)
    even = _even(workload)
    tiles = (64, 128, _queue(rows), *even)
    queues = () if apart_of(workload) else sorted({n for n in tiles if 16 < n < 2 * rows})
    return Space(
        (
            Knob("axis", ("rows", "trees") if rows <= SMALL_BATCH else ("rows",)),
            Knob("row_tile", tuple(sorted({*row_tiles(rows, lanes), *large, *queues, *even}))),
            Knob("lanes", (1, *lanes)),
            Knob("vectors", (1, 2, 4, 8, 16, *queues)),
            Knob("tree_tile", (1, 2, 4, 8, 16, 32, 64, 128)),
            Knob("order", orders(rows)),
            Knob("together", (1, 2, 4, 8)),
            Knob("level_unroll", (1, 2, 4)),
            Knob("lookup", ("scalar", "gather") if wide else ("scalar",)),
            *thread_knobs(workload),
        ),
        valid,
    )


def default(workload: Workload, target: Target) -> Config:
    """Return a good single-thread configuration for unmeasured workloads."""
    # Narrow vectors: assembling values looked up lane by lane is cheap.
    rows, lanes, vectors = int(workload["rows"]), min(4, vector_lanes(target, workload["dtype"])[-1]), 8
    walks = lanes * vectors
    common: Config = {
        "lanes": lanes,
        "vectors": vectors,
        "order": "trees",
        "together": 1,
        "level_unroll": 1,
        "lookup": "scalar",
    }
    alone: Config = {"axis": "rows", "row_tile": 1, "lanes": 1, "vectors": 1}
    together = min(_ALONE, 1 << (int(workload["trees"]) - 1).bit_length())
    alone |= {"tree_tile": together, "together": together}
    if rows < walks:
        if 2 * int(workload["trees"]) <= walks:
            return {**common, **alone, "level_unroll": 2 if workload["depth"] >= _DEEP else 1}
        return {**common, "axis": "trees", "row_tile": 1, "tree_tile": walks}
    if _touches_few(workload):
        tile = _queue(rows)
        return {**common, "axis": "rows", "row_tile": tile, "vectors": tile, "lanes": 1, "tree_tile": 1}
    if gathers(target) and workload["depth"] >= _GATHERED and workload["dtype"] == "float32":
        own = _by_gathers(workload)
        gathered = {**common, "axis": "rows", **(own or {})}
        if own and space(workload, target).contains(gathered):
            return gathered
    most = _most_rows(workload)
    if most < walks:
        # Not even a few rows fit the cache: scalar walks, row by row.
        return {**common, **alone, "level_unroll": 1}
    if workload["depth"] < _DEEP:
        return {
            **common,
            "axis": "rows",
            "row_tile": min(most, 64 if rows > walks else walks),
            "tree_tile": 8,
        }
    return {**common, "axis": "rows", **_by_tiles(workload)}


def _by_gathers(workload: Workload) -> Config | None:
    """Return what a default has of its own for several rows on a CPU that gathers fast; None for scalars."""
    rows, nodes = int(workload["rows"]), int(workload["nodes"])
    wide: Config = {"lookup": "gather", "vectors": 8, "tree_tile": 1, "together": 1}
    if rows < 1000 * int(workload["threads"]):
        if workload["trees"] > 1 and nodes <= _NODES_IN_L1:
            small: Config = {"row_tile": 8, "lanes": 1, "vectors": 8, "tree_tile": 8, "together": 2}
            return {**small, "level_unroll": 2}
        return {**wide, "row_tile": 128, "lanes": 16}
    # Each row tile reloads every tree, so tiles are large if the trees leave the second-level cache.
    if nodes <= _NODES_IN_L1:
        far = nodes * _NODE_BYTES * int(workload["trees"]) * int(workload["groups"]) > _TILE_BYTES
        row_tile = 2048 if far and _tile_bytes(workload, 2048) <= _TILE_BYTES else 512
        return {**wide, "row_tile": row_tile, "lanes": 8}
    return None


def _by_tiles(workload: Workload) -> Config:
    """Return what a default has of its own for trees that exceed the first-level cache.

    They are reloaded for each tile, so tiles are large. Walks wait for memory: scalar ones are as fast at
    least, and depend less on the CPU.
    """
    row_tile = max(_even(workload), default=WALKS)
    if row_tile > _QUEUED and workload["groups"] == 1 and not apart_of(workload):
        return {"row_tile": row_tile, "lanes": 1, "vectors": row_tile, "tree_tile": 1, "level_unroll": 1}
    return {"row_tile": row_tile, "lanes": 1, "vectors": WALKS, "tree_tile": 1, "level_unroll": 2}


def apply(sch: Any, workload: Workload, config: Config) -> None:
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
    if in_blocks(config):
        sch.annotate(level, BLOCKS, 2 * math.ceil(_FIRST * math.log2(workload["leaves"])))
    elif by_queue(config):
        sch.annotate(level, QUEUE, int(math.log2(workload["leaves"])))
    else:
        sch.annotate(level, EARLY_EXIT, int(config["lanes"]))
    walk = sch.get_sblock("walk")
    state_tile(sch, walk, "columns", 3 if config["axis"] == "trees" else 4, by_row=True)
    finish(sch, config, placed, [(walk, level)], [], column_lanes=1)
    if _walks_one_tree(workload, config):
        # Last, for the loops that set the scores to 0 are copies of these.
        block = sch.get_loops(sch.get_sblock("tile_sums_update"))[3]
        sch.annotate(block, NEXT_TREE, int(config["lanes"]) * int(config["vectors"]))


def _tile_bytes(workload: Workload, row_tile: int) -> int:
    count = workload["numeric"] + workload["categorical"] + 1
    return row_tile * int(count) * (8 if workload["dtype"] == "float64" else 4)


def _most_rows(workload: Workload) -> int:
    """Return the most rows of a default tile, a power of two; their columns fill half of `_TILE_BYTES`."""
    tiles = (
        n
        for n in (_MOST_ROWS >> shift for shift in range(_MOST_ROWS.bit_length()))
        if _tile_bytes(workload, n) <= _TILE_BYTES // 2
    )
    return next(tiles, 0)


def _even(workload: Workload) -> set[int]:
    """Return row tiles with little padding: the fewest tiles, and as many for each thread."""
    rows, most = int(workload["rows"]), _most_rows(workload)
    if most < WALKS or rows <= WALKS:
        return set()
    fewest, threads = -(-rows // most), int(workload["threads"])
    return {-(-rows // (n * WALKS)) * WALKS for n in (fewest, -(-fewest // threads) * threads)}


def _touches_few(workload: Workload) -> bool:
    """Whether rows that fit a queue touch a part only of trees that exceed the second-level cache."""
    rows, nodes = int(workload["rows"]), int(workload["nodes"])
    far = nodes * _NODE_BYTES * int(workload["trees"]) > FAR_BYTES and nodes >= _NODES_PER_ROW * rows
    fits = _tile_bytes(workload, _queue(rows)) <= _TILE_BYTES
    return far and fits and rows <= _QUEUED and not apart_of(workload)


def _queue(rows: int) -> int:
    """Return the row tile of a queue for all rows of a call, or few of them."""
    return min(-(-rows // 8) * 8, _QUEUED)


def by_queue(config: Config) -> bool:
    """Whether all rows of a tile walk a tree side by side, with their slots in memory (see `QUEUE`)."""
    vectors = int(config["vectors"])
    one = config["lanes"] == config["together"] == config["tree_tile"] == config["level_unroll"] == 1
    return config["axis"] == "rows" and one and vectors > 16 and config["row_tile"] == vectors


def in_blocks(config: Config) -> bool:
    """Whether rows of a tile with a queue walk in blocks (see `BLOCKS`)."""
    return by_queue(config) and int(config["vectors"]) > _QUEUED


def _walks_one_tree(workload: Workload, config: Config) -> bool:
    """Whether several blocks of rows walk a tree, which the next tree in the table follows."""
    alone = config["tree_tile"] == 1 and config["order"] == "trees" and workload["groups"] == 1
    blocks = int(config["row_tile"]) > int(config["lanes"]) * int(config["vectors"])
    return config["axis"] == "rows" and alone and blocks and not apart_of(workload)
