"""CPU schedules of leaf intervals.

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
            for tree in tile: sums[tree % chains] += value[tree, leaf]
            score += sum(sums)
"""

from __future__ import annotations

from typing import Any

from hbtvm.schedules.cpu.gathers import gathers
from hbtvm.schedules.cpu.oblivious import COMPARE, place_ranks
from hbtvm.schedules.cpu.sharing import thread_knobs, threads_are_valid
from hbtvm.schedules.cpu.steps import (
    MAX_SUMMED,
    SMALL_BATCH,
    decompose,
    finish,
    is_arm,
    lookup_default,
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
_LATENCY, _VECTOR, _ADDED = 4, 2, 3
"""Cycles of a split: of the two instructions that wait for the last split's, and of a register's five; those
of a leaf value's lookup and addition, also for trees that only fill a register."""

_FEW_ROWS, _SOME_ROWS, _FEW_COLUMNS = 16, 32, 32
"""On x86-64: most rows for trees of up to 32 leaves, and of more; most columns against vectors of rows."""

_MANY_ROWS, _LEAVES_SEARCHED = 64, 100
"""On x86-64: rows from which vectors of rows pay, and leaves of all trees for each column, whose ranks are
searched for."""

_WIDE_TILES = 1024  # rows from which a tile of eight registers, not four, leaves few rows over

_FEW_TREES = 16  # most of a register of bytes would be empty, and fewer trees of a group fill one of words

_LEAVES_PER_COLUMN = {False: 16, True: 40}
"""Leaves of all trees for each column from which the search for ranks pays, by whether others gain more from
wide vectors or several rows."""

_LEVEL, _LEVEL_GATHERED, _WALKED = 160, 55, 8
"""Instructions for the splits of a register of trees that take as long as a level of walks over perfect trees
by loads or by fast gathers. Deeper trees are walked half as fast."""


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
            ones = config["row_tile"] == 1 and config["leaf_lookup"] == "scalar"
            return ones and config["tree_tile"] == block and config["order"] == "trees"
        if config["row_tile"] == block and config["order"] != "trees":
            return False  # a single block of rows has no order
        return int(config["row_tile"]) % block == 0 and int(config["tree_tile"]) <= MAX_SUMMED

    rows, lanes = int(workload["rows"]), vector_lanes(target, "int32")
    small = rows <= SMALL_BATCH
    tiles = tuple(n for n in (16, 32, 64, 128, 256, 512) if n >= _NUMBERS * lanes[0] and n < 2 * rows)
    leaf = lookup_knob("leaf_lookup", target, workload["leaves"] * workload["width"])
    return Space(
        (
            Knob("axis", ("rows", "trees") if small else ("rows",)),
            Knob("row_tile", (1, *tiles)),
            Knob("lanes", lanes),
            Knob("vectors", (1, 2, 4, 8)),
            Knob("tree_tile", (4, 8, 16, 32, 64, 128)),
            Knob("order", orders(rows)),
            Knob("node_unroll", (1, 2, 3, 5)),
            leaf if tiles else Knob("leaf_lookup", ("scalar",)),
            *thread_knobs(workload),
        ),
        valid,
    )


def default(workload: Workload, target: Target) -> Config:
    """Return a good single-thread configuration for unmeasured workloads."""
    widths, rows = vector_lanes(target, "int32"), int(workload["rows"])
    splits = int(workload["leaves"]) - 1
    common: Config = {
        "order": "trees",
        "node_unroll": next(n for n in _UNROLLED if splits % n == 0),
        "leaf_lookup": "scalar",
    }
    # For fewer rows, lookups of a row's ranks take less time than the leaf values of vectors of rows.
    if rows >= SMALL_BATCH:
        wide = _NUMBERS * widths[-1]
        most = max(n for n in (1, 2, 4) if n == 1 or n * wide < 2 * rows)
        # Measured with AVX2 only: 0.95 of the time by permutes, 0.97 of that with tiles of eight registers.
        if int(target["vector_bits"]) == 256 and not is_arm(target):
            common["leaf_lookup"] = lookup_default(target, workload["leaves"] * workload["width"], True)
            if common["leaf_lookup"] == "permute" and rows >= _WIDE_TILES:
                most = 8
        tiles = {"row_tile": most * wide, "vectors": most, "tree_tile": 8}
        return {**common, "lanes": widths[-1], "axis": "rows", **tiles}

    def cost(shape: tuple[int, int]) -> int:
        lanes, vectors = shape
        tile = _NUMBERS * lanes * vectors
        took = splits * max(_LATENCY, _VECTOR * vectors) + _ADDED * tile
        return -(-int(workload["trees"]) // tile) * took

    lanes, vectors = min(((n, v) for n in reversed(widths) for v in (1, 2, 4)), key=cost)
    tiles = {"row_tile": 1, "vectors": vectors, "tree_tile": _NUMBERS * lanes * vectors}
    return {**common, "lanes": lanes, "axis": "trees", **tiles}


def pays(workload: Workload, target: Target) -> bool:
    """Whether this program is the default.

    Trees have to make up for the search for the ranks of columns. The rules for x86-64 are from measurements.
    """
    columns, trees = workload["numeric"] + workload["categorical"], workload["trees"] * workload["groups"]
    if is_arm(target):
        return columns <= min(trees, _LOOKED_UP)
    if "sse4.2" not in target.get("features", ()) or trees < _FEW_TREES:
        return False
    rows, leaves, depth = int(workload["rows"]), workload["leaves"], workload["depth"]
    wide, few = int(target["vector_bits"]) >= 512, rows < vector_lanes(target, "int32")[-1]
    if rows >= _MANY_ROWS:
        # Shallow trees are walked over bytes of ranks, and words of 32 leaves fill wide vectors.
        other = depth <= _WALKED if leaves > 32 else wide
        return not other and trees * leaves >= _LEAVES_SEARCHED * columns
    if few and wide and leaves <= 32 and workload["trees"] <= _FEW_TREES:
        return False
    if not few:  # vectors of rows need no lookups of columns, and one test for all lanes
        most = _SOME_ROWS if leaves > 32 else 0 if wide else _FEW_ROWS
        walked = depth <= (_WALKED if leaves > 32 else 5)
        if rows > most or walked or columns > _FEW_COLUMNS:
            return False
    if trees * leaves < columns * _LEAVES_PER_COLUMN[wide or not few]:
        return False
    tables = -(-columns // (_LOOKED_UP if "avx512vbmi" in target["features"] else 16))
    level = _LEVEL_GATHERED if gathers(target) else _LEVEL // (1 + (int(target["vector_bits"]) < 256))
    return leaves * 3 * (1 + tables) <= level * (1 + (depth > _WALKED)) * depth


def searched(config: Config) -> Config:
    """Return a configuration with the choices of the search for ranks (`hbtvm.strategies.trees.ranks`)."""
    return {**config, "search_lookup": COMPARE}


def apply(sch: Any, workload: Workload, config: Config) -> None:
    """Schedule the expressions in place (blocks ``ranks``, ``row_ranks``, ``leaf``)."""
    vectors, leaf, by_tree = int(config["vectors"]), sch.get_sblock("leaf"), config["axis"] == "trees"
    if by_tree:
        tile, end = _place_trees(sch)
        lane, split = sch.get_loops(leaf)[-2:]
    else:
        placed = place(sch, {**config, "vectors": _NUMBERS * vectors}, "leaf")
        tile, lane, split = placed.tile, sch.fuse(placed.register, placed.lane), placed.reduction
    split, inner = sch.split(split, [None, int(config["node_unroll"])])
    register, lane = sch.split(lane, [None, byte_lanes(config)])
    sch.reorder(split, inner, register, lane)
    sch.unroll(inner)
    sch.unroll(register)
    sch.vectorize(lane)
    if not by_tree:
        state_tile(sch, leaf, "ranks", 4)
        place_ranks(sch, workload, searched(config), tile)
        finish(sch, config, placed, [(leaf, split)], [])
        return
    state_tile(sch, leaf, "row_ranks", 3, by_row=True)
    ranks = sch.get_sblock("ranks")
    sch.compute_at(sch.get_sblock("row_ranks"), tile, True)
    place_ranks(sch, workload, searched(config), tile)
    # Each value is searched for where it was read.
    sch.compute_at(sch.get_sblock("columns"), sch.get_loops(ranks)[-2], True)
    decompose(sch, leaf, split, 1)
    for block, loop in end:
        decompose(sch, block, loop, 1)


def _place_trees(sch: Any) -> tuple[Any, list[tuple[Any, Any]]]:
    """Arrange the loops of vectors of trees.

    Returns the loop over tiles, and the reductions of sums, each with its outermost loop.
    """
    scores, sums = sch.get_sblock("scores"), sch.get_sblock("tile_sums")
    tile, g, v, r, o, chain = sch.get_loops(scores)
    sch.reorder(g, r, o, v, chain)
    sch.unroll(chain)
    sch.compute_at(sums, o, True)
    chain, each = sch.get_loops(sums)[-2:]
    sch.reorder(each, chain)
    sch.unroll(chain)
    sch.compute_at(sch.get_sblock("leaf"), o, True)
    return tile, [(sums, each), (scores, o)]
