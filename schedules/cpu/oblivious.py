"""CPU schedules of the oblivious strategy.

Two programs, chosen by the knob ``axis``. Vectors of rows (large batches)::

    for tile of row_tile rows:
        columns[:, :] = ...                              # transposed, in L1
        ranks[:, :] = search(columns)                    # bytes
        for tree tile, for row block   (or the other way round: ``order``)
            for tree in tile:
                leaf[row block] = sum over levels of bits      # registers of bytes
                for register: sums[register] += value[tree, leaf]
            scores[row block] += sums

With ``leaf_lookup`` = ``"digits"`` (`hbtvm.strategies.trees.digits`), the tile's body is::

            for pair of trees in tile:
                leaf[2, row block] = ...
                for digit: digit_sums[digit, row block] += digits[pair, digit, leaf]
            scores[row block] += low + step * digit_sums

Vectors of trees (one row, small batches)::

    for row:
        columns[:] = ...
        ranks[:] = search(columns)                       # vectors of columns
        for tree tile:                                   # `vectors` registers of `lanes` trees
            leaf[tree tile] = sum over levels of bits
            sums[tree tile] += value[leaf, tree tile]
        score = sum(sums)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from hbtvm.schedules.cpu.gathers import gathers
from hbtvm.schedules.cpu.steps import (
    MAX_SUMMED,
    SMALL_BATCH,
    common_knobs,
    decompose,
    few_or_many,
    finish,
    is_arm,
    least_padded,
    lookup_default,
    lookup_is_valid,
    lookup_knob,
    mark,
    place,
    place_before,
    place_columns,
    shape_is_valid,
    state_tile,
    vector_lanes,
    vectorize,
)
from hbtvm.schedules.space import Config, Knob, Space
from hbtvm.schedules.workload import Target, Workload

COMPARE = "compare"  # choice of ``search_lookup``: a search by comparisons with registers of thresholds

_MOST_PERMUTED = 256  # most leaves whose values permutes look up
_FEW_LEAVES = 64  # most leaves whose values take few loads
_MOST_PAIRED = 128  # most trees whose digits, of up to 7 bits, are added in 16 bits, with room to spare
_REGISTER = 64  # bytes of the widest register


def rank_dtype(bits: int) -> str:
    """Return the type of the ranks of thresholds, which begin at its lowest value: comparisons are signed."""
    return "int8" if bits <= 8 else "int16"


def row_dtype(workload: Workload, config: Config) -> str:
    """Return the type of the ranks of rows: small where it decides how many rows a register holds."""
    return "int32" if config["axis"] == "trees" else rank_dtype(workload["rank_bits"])


def leaf_bits(workload: Workload, config: Config) -> int:
    """Return the bits of a leaf's number that fit an element as wide as a row's rank."""
    return 8 * np.dtype(row_dtype(workload, config)).itemsize


def rank_room(columns: int, bits: int) -> tuple[int, int]:
    """Return the shape of the table of thresholds; vectors of columns and permutes read whole registers."""
    step = _REGISTER // 4
    return -(-columns // step) * step, max(2**bits, 2 * step)


def byte_lanes(workload: Workload, config: Config) -> int:
    """Return the rows of a register of bytes, for lookups of digits."""
    return int(config["lanes"]) * np.dtype(workload["dtype"]).itemsize


def _digits(workload: Workload, target: Target) -> bool:
    """Whether instructions look up the digits of leaf values: 64 bytes, or 256 with AVX-512 VBMI."""
    most = 8 if "avx512vbmi" in target["features"] else 6
    fits = workload["depth"] <= most and workload["rank_bits"] <= 8 and workload["rows"] > 1
    return fits and bool(workload.get("leaf_digits")) and int(target["vector_bits"]) >= 256


def space(workload: Workload, target: Target) -> Space:
    """Return the knobs for a workload (see `hbtvm.strategies.base.workload_of`) on a CPU target."""

    def valid(config: Config) -> bool:
        by_row = config["axis"] == "rows"
        if by_row and config.get("row_lookup", "scalar") != "scalar":
            return False  # all rows share a level's column
        if config["search_permutes"] and (not by_row or config["lanes"] == 1):
            return False
        if int(config["search_permutes"]) == bits - 1 and config["search_lookup"] != "scalar":
            return False
        if config["leaf_lookup"] == "digits":
            block = int(config["lanes"]) * int(config["vectors"])
            if not by_row or config["lanes"] != widest or block % byte_lanes(workload, config):
                return False
            if not 2 <= int(config["tree_tile"]) <= _MOST_PAIRED:
                return False
            config = {**config, "tree_tile": 2, "leaf_lookup": "scalar"}
        return (
            shape_is_valid(config)
            and lookup_is_valid(config, "leaf_lookup", by_row)
            and lookup_is_valid(config, "search_lookup", False)
        )

    rows, bits = int(workload["rows"]), int(workload["rank_bits"])
    count = workload["numeric"] + workload["categorical"]
    wide = int(target["vector_bits"]) >= 256
    most = 7 if wide else 4 if is_arm(target) and workload["dtype"] == "float32" else 0
    leaves = 2 ** workload["depth"] * workload["width"]
    leaf = lookup_knob("leaf_lookup", target, leaves, shared=rows > 1)
    if wide and rows > 1 and leaves <= _MOST_PERMUTED:
        leaf = Knob("leaf_lookup", ("scalar", "gather", "permute"))
    if _digits(workload, target):
        leaf = Knob("leaf_lookup", (*leaf.choices, "digits"))
    widest = vector_lanes(target, workload["dtype"])[-1]
    return Space(
        (
            *common_knobs(workload, target),
            leaf,
            lookup_knob("search_lookup", target, 10**6, shared=False),
            Knob("search_permutes", tuple(range(min(bits - 1, most) + 1)) if rows > 1 else (0,)),
            *((lookup_knob("row_lookup", target, count),) if rows <= SMALL_BATCH else ()),
        ),
        valid,
    )


def default(workload: Workload, target: Target) -> Config:
    """Return a good single-thread configuration for unmeasured workloads."""
    lanes, rows = vector_lanes(target, workload["dtype"])[-1], int(workload["rows"])
    by_row = rows >= lanes
    known = {knob.name: knob.choices for knob in space(workload, target).knobs}
    leaves = 2 ** workload["depth"] * workload["width"]
    most = int(target["vector_bits"]).bit_length() - 3
    permutes = int(target["vector_bits"]) >= 512 and leaves <= _MOST_PERMUTED
    leaf = "permute" if by_row and permutes else lookup_default(target, leaves, by_row)
    common: Config = {
        "lanes": lanes,
        "order": "trees",
        "leaf_lookup": leaf,
        "search_lookup": "scalar",
        "search_permutes": max(n for n in known["search_permutes"] if int(n) <= most) if by_row else 0,
    }
    if rows <= SMALL_BATCH:
        count = workload["numeric"] + workload["categorical"]
        common["row_lookup"] = "scalar" if by_row else lookup_default(target, count, True)
    if not by_row:
        tile, lookups = lanes, ("leaf_lookup", "search_lookup")
        if gathers(target):
            common |= {name: "gather" for name in lookups if common[name] == "scalar"}
            tile = max(lanes, least_padded(workload["trees"], (1, 2 * lanes)))
        return {**common, "axis": "trees", "row_tile": 1, "vectors": tile // lanes, "tree_tile": tile}
    item = np.dtype(workload["dtype"]).itemsize
    if rows >= lanes * item and "digits" in known["leaf_lookup"]:
        shape: Config = {"row_tile": lanes * item, "vectors": item, "tree_tile": 64}
        return {**common, **shape, "axis": "rows", "leaf_lookup": "digits"}
    vectors = few_or_many(workload, lanes)
    if vectors == 4 and rows > 4 * lanes and leaves > _FEW_LEAVES:
        vectors = 8  # more rows for each load of a large table
    return {
        **common,
        "axis": "rows",
        "row_tile": lanes * vectors,
        "vectors": vectors,
        "tree_tile": MAX_SUMMED,
    }


def apply(sch: Any, workload: Workload, config: Config) -> None:
    """Schedule the expressions in place (blocks ``ranks``, ``leaf_<part>``)."""
    if config["leaf_lookup"] == "digits":
        _apply_digits(sch, workload, config)
        return
    by_tree, lanes = config["axis"] == "trees", int(config["lanes"])
    parts = -(-workload["depth"] // leaf_bits(workload, config))
    placed = place(sch, config, "leaf_0", reduces=False)
    stages = [placed, *(place_before(sch, config, placed, f"leaf_{part}") for part in range(1, parts))]
    item = leaf_bits(workload, config) // 8
    for part, stage in enumerate(stages):
        register, lane = stage.register, stage.lane
        block = lanes * int(config["vectors"])
        small = min(block, lanes * np.dtype(workload["dtype"]).itemsize // item)
        if not by_tree and small > lanes:
            register, lane = sch.split(sch.fuse(register, lane), [None, small])
        sch.unroll(register)
        vectorize(sch, lane, lanes)
        leaf = sch.get_sblock(f"leaf_{part}")
        state_tile(sch, leaf, "ranks", 3 if by_tree else 4, by_row=by_tree)
    place_ranks(sch, workload, config, placed.tile)
    finish(sch, config, placed, [], [])


def place_ranks(sch: Any, workload: Workload, config: Config, tile: Any) -> None:
    """Compute a tile's ranks at the head of the loop over tiles (blocks ``search_<level>``, ``ranks``)."""
    ranks = sch.get_sblock("ranks")
    sch.compute_at(ranks, tile, True)
    if config["search_lookup"] == COMPARE:
        return  # instructions search for one rank at a time
    lanes = int(config["lanes"])
    block, lane = sch.split(sch.get_loops(ranks)[-1], [None, lanes])
    vectorize(sch, lane, lanes)
    for level in reversed(range(int(workload["rank_bits"]) - 1)):
        search = sch.get_sblock(f"search_{level}")
        sch.compute_at(search, block, True)
        vectorize(sch, sch.get_loops(search)[-1], lanes)


def _apply_digits(sch: Any, workload: Workload, config: Config) -> None:
    lanes, vectors, rows = int(config["lanes"]), int(config["vectors"]), byte_lanes(workload, config)
    scores, sums = sch.get_sblock("scores"), sch.get_sblock("digit_sums")
    tile, g, v, r, o = sch.get_loops(scores)
    block, register, lane = sch.split(r, [None, vectors, lanes])
    outer = (o, block) if config["order"] == "trees" else (block, o)
    sch.reorder(tile, g, *outer, v, register, lane)
    mark(sch, register, lane)
    total = sch.get_sblock("tile_sums")
    sch.compute_at(total, outer[1], True)
    _, register, lane = sch.split(sch.get_loops(total)[-1], [None, vectors, lanes])
    mark(sch, register, lane)
    sch.compute_at(sums, outer[1], True)
    p, r, pair = sch.get_loops(sums)[-3:]
    register, lane = sch.split(r, [None, rows])
    sch.reorder(pair, p, register, lane)
    sch.unroll(p)
    mark(sch, register, lane)
    leaf = sch.get_sblock("leaf_0")
    sch.compute_at(leaf, pair, True)
    tree, r = sch.get_loops(leaf)[-2:]
    register, lane = sch.split(r, [None, rows])
    sch.unroll(tree)
    mark(sch, register, lane)
    state_tile(sch, leaf, "ranks", 4)
    place_ranks(sch, workload, config, tile)
    place_columns(sch, tile, lanes)
    init = sch.decompose_reduction(sums, pair)
    vectorize(sch, sch.get_loops(init)[-1], rows)
    decompose(sch, scores, sch.get_loops(scores)[1], lanes)
