"""CPU schedules of ranked traversal in vectors of rows (`hbtvm.strategies.trees.ranked_rows`).

::

    for tile of row_tile rows:
        columns, ranks, row_ranks = ...                       # by columns and by rows, in L1
        for tree tile, for row block   (or the other way round: ``order``)
            for tree in tile:
                for register of `vectors`: walk[register] = <tests of the first levels>
                for row in block (by `together`): sums[row] += value[subtree of walk[row]]
            scores[row block] += sums
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hbtvm.schedules.cpu.gathers import gathers
from hbtvm.schedules.cpu.oblivious import COMPARE, place_ranks, rank_dtype
from hbtvm.schedules.cpu.perfect import permutes_bytes
from hbtvm.schedules.cpu.steps import (
    MAX_SUMMED,
    decompose,
    is_arm,
    mark,
    place_columns,
    state_tile,
    vector_lanes,
    vectorize,
)
from hbtvm.schedules.space import Config, Knob
from hbtvm.schedules.workload import Target, Workload, apart_of

SCALARS, SUBTREES = "hbtvm.scalars", "hbtvm.subtrees"
"""Annotations of a loop over rows whose walks stay scalar, or test the nodes of subtrees together.

See `hbtvm.compiler.lowering.scalar_rows` for their values.
"""

_BYTES = 4  # of an int32
_BYTE, _MOST_BITS = 8, 16  # bits of ranks
_LEAST_DEPTH, _MOST_DEPTH = 4, 10
_SHARED = {1: 3.2, 2: 2.0, 4: 1.6}
"""By registers that share the loads of a tree's nodes: time of the first levels for one lane, over that of a
row's subtree."""

ROW_TILES = (16, 32, 64, 128, 256, 512, 1024, 2048)

_MOST_MASKED = 7  # levels whose nodes are all tested: their numbers fit a byte

_MOST_ROWS = 1024  # of a tile by default: twice as many take 1.01 to 1.05 times as long

_LOADED = 64
"""Rows that take as long as the loads of tables that all rows of a tile share, for ranks of two bytes."""

_DEPTHS_OF_WORDS = (6, 7, 8)  # where walks over ranks of two bytes are faster than those over numbers
_SHUFFLED = 64  # bytes of a row's ranks from which scalar walks are faster than shuffles
_MASKED, _MASKED_ROWS = 6, 256  # levels by masks above scalar walks, and rows whose ranks stay in the caches

_GATHERED = {8: 17, 9: 8, 10: 3}
"""By depth: trees for each column from which the ranks of columns pay against walks that gather numbers."""

_GATHERED_WORDS = 25  # the same for ranks of two bytes and depth 8

_PERMUTED, _PERMUTED_WORDS = 32, 100
"""The same for depth 8 where those walks permute bytes of columns: for ranks of one byte, and of two."""

_MOST_COLUMNS = 256  # a word of walks has a byte for a column
_MOST_SHUFFLED = 128  # a subtree takes an instruction for 16 columns


def offers(workload: Workload, target: Target) -> bool:
    """Whether a workload has this program: small ranks, few columns, and instructions for bytes."""
    columns = workload["numeric"] + workload["categorical"]
    return (
        not is_arm(target)
        and "sse4.2" in target.get("features", ())
        and workload["rank_bits"] <= _MOST_BITS
        and columns <= _MOST_COLUMNS
        and _LEAST_DEPTH <= workload["depth"] <= _MOST_DEPTH
        and not apart_of(workload)
        and workload["rows"] >= _BYTES * row_lanes(target)[0]
    )


def pays(workload: Workload, target: Target) -> bool:
    """Whether this program is the default; trees have to make up for the search for the ranks of columns."""
    columns, trees = workload["numeric"] + workload["categorical"], workload["trees"] * workload["groups"]
    least, least_of_words = 1.0, 0
    if gathers(target):
        least, least_of_words = _GATHERED.get(workload["depth"], math.inf), _GATHERED_WORDS
        if permutes_bytes(workload, target):
            least, least_of_words = max(least, _PERMUTED), _PERMUTED_WORDS
    if not offers(workload, target) or columns * least > trees:
        return False
    bits, leaves, depth = int(target["vector_bits"]), workload["leaves"], workload["depth"]
    if workload["rank_bits"] > _BYTE:
        if columns * least_of_words > trees:
            return False
        searched = columns * (1 + (_masked(workload) > 0))
        depths = _DEPTHS_OF_WORDS if bits <= 256 else _DEPTHS_OF_WORDS[-1:]
        return depth in depths and leaves > 32 and searched * 512 <= trees * min(bits, 256)
    wide = bits >= 512
    # Permutes of wide vectors look up the leaf values of shallow trees.
    if depth < (7 if wide else 5):
        return False
    # Few leaves have bits in one word, see `bitvector`.
    return leaves > 64 or depth <= ((0 if wide else 7) if leaves <= 32 else 9)


def row_lanes(target: Target) -> tuple[int, ...]:
    """Return the candidates for a quarter of the rows of a register of ranks."""
    return vector_lanes(target, "int32")[-2:]


def knobs(workload: Workload, target: Target) -> tuple[Knob, ...]:
    """Return the knobs that other programs lack: levels of the search by permutes, and levels by bytes."""
    most = 7 if int(target["vector_bits"]) >= 256 else 0
    levels = tuple(range(min(workload["rank_bits"] - 1, most) + 1))
    masked = tuple(n for n in range(4, _MOST_MASKED + 1) if n <= workload["depth"])
    return Knob("search_permutes", levels, before=0), Knob("byte_levels", (0, *masked), before=0)


def valid(config: Config, workload: Workload, target: Target) -> bool:
    """Whether a configuration with vectors of rows is consistent."""
    masked, lanes = int(config["byte_levels"]), int(config["lanes"])
    if masked and config["together"] != 1:
        return False
    if not masked and workload["numeric"] + workload["categorical"] > _MOST_SHUFFLED:
        return False
    block = _BYTES * lanes * int(config["vectors"])
    if int(config["row_tile"]) % block:
        return False
    if config["row_tile"] == block and config["order"] != "trees":
        return False
    lookups = ("node_lookup", "row_lookup", "leaf_lookup")
    if any(config[name] != "scalar" for name in lookups):
        return False
    if config["search_permutes"] and config["search_lookup"] == COMPARE:
        return False
    if int(config["search_permutes"]) == workload["rank_bits"] - 1 and config["search_lookup"] != "scalar":
        return False
    return int(config["tree_tile"]) <= MAX_SUMMED


def default(workload: Workload, target: Target) -> Config:
    """Return a good single-thread configuration for unmeasured workloads."""
    shapes = [
        (lanes, vectors)
        for lanes in row_lanes(target)
        for vectors in _SHARED
        if vectors == 1 or _BYTES * lanes * vectors < 2 * workload["rows"]
    ]
    lanes, vectors = min(shapes, key=lambda shape: _cost(workload, *shape))
    most = int(target["vector_bits"]).bit_length() - 3
    permutes = knobs(workload, target)[0].choices
    block, words, masked = _BYTES * lanes * vectors, workload["rank_bits"] > _BYTE, _masked(workload)
    row_tile = _row_tile(workload, block) if words or masked else block
    return {
        "axis": "rows",
        "row_tile": max(block, min(row_tile, _MASKED_ROWS)) if masked else row_tile,
        "together": 1 if masked else 8 if words and workload["width"] > 1 else 4,
        "lanes": lanes,
        "vectors": vectors,
        "tree_tile": 8,
        "order": "trees",
        "node_lookup": "scalar",
        "row_lookup": "scalar",
        "leaf_lookup": "scalar",
        "search_lookup": COMPARE if words else "scalar",
        "byte_levels": masked,
        "search_permutes": 0 if words else max(n for n in permutes if int(n) <= most),
    }


def _masked(workload: Workload) -> int:
    """Return the levels by masks above scalar walks; 0 for shuffles, which take few columns."""
    columns = workload["numeric"] + workload["categorical"]
    if columns * np.dtype(rank_dtype(workload["rank_bits"])).itemsize <= _SHUFFLED:
        return 0
    return min(_MASKED, int(workload["depth"]))


def _row_tile(workload: Workload, block: int) -> int:
    """Return a multiple of a block: many rows share what they fetch of large tables, few are padding."""
    rows, threads = int(workload["rows"]), int(workload["threads"])

    def cost(tile: int) -> float:
        return -(-rows // (tile * threads)) * tile * (1 + _LOADED / tile)

    return min((tile for tile in ROW_TILES if block <= tile <= max(block, _MOST_ROWS)), key=cost)


def _cost(workload: Workload, lanes: int, vectors: int) -> float:
    """Estimate the time of a call, padding included."""
    block = _BYTES * lanes * vectors
    return -(-workload["rows"] // block) * block * (1 + _SHARED[vectors] / lanes)


def apply(sch: Any, workload: Workload, config: Config) -> None:
    """Schedule the expressions in place (blocks ``ranks``, ``row_ranks``, ``parts``, ``walk``, ``ends``)."""
    lanes, vectors, together = (int(config[name]) for name in ("lanes", "vectors", "together"))
    wide, words = _BYTES * lanes, workload["rank_bits"] > _BYTE
    leaves = 2 ** workload["depth"]
    scores, sums = sch.get_sblock("scores"), sch.get_sblock("tile_sums")
    tile, g, v, r, o = sch.get_loops(scores)
    block, register, lane = sch.split(r, [None, _BYTES * vectors, lanes])
    outer = (o, block) if config["order"] == "trees" else (block, o)
    sch.reorder(tile, g, *outer, v, register, lane)
    if config["byte_levels"]:
        vectorize(sch, lane, lanes)
    else:
        mark(sch, register, lane)
    sch.compute_at(sums, outer[1], True)
    v, r, tree = sch.get_loops(sums)[-3:]
    walk = sch.get_sblock("walk")
    if config["byte_levels"]:
        sch.reorder(r, tree, v)
        for loop in (tree, v):
            sch.unroll(loop)
        trees = int(config["tree_tile"])
        sch.annotate(r, SCALARS, [trees, workload["groups"], trees * leaves, workload["width"]])
        state_tile(sch, sums, "row_ranks", 4, by_row=True)
        sch.compute_at(walk, outer[1], True)
    else:
        r, row = sch.split(r, [None, together])
        sch.reorder(tree, r, row, v)
        sch.unroll(row)
        ends = sch.get_sblock("ends")
        sch.compute_at(ends, row, True)
        state_tile(sch, ends, "row_ranks", 4, by_row=True)
        sch.compute_at(walk, tree, True)
    # LLVM splits a vector into registers, which share the loads of nodes.
    sch.vectorize(sch.split(sch.get_loops(walk)[-1], [None, wide * vectors])[1])
    state_tile(sch, walk, "parts" if words else "ranks", 4)
    if words:
        parts = sch.get_sblock("parts")
        sch.compute_at(parts, tile, True)
        sch.vectorize(sch.split(sch.get_loops(parts)[-1], [None, wide])[1])
        state_tile(sch, parts, "ranks", 2)
    sch.compute_at(sch.get_sblock("row_ranks"), tile, True)
    place_ranks(sch, workload, config, tile)
    place_columns(sch, tile, lanes)
    if not config["byte_levels"]:
        init = sch.decompose_reduction(sums, tree)
        vectorize(sch, sch.split(sch.get_loops(init)[-1], [None, lanes])[1], lanes)
        sch.annotate(r, SUBTREES, [together, 1, leaves, workload["width"]])
    decompose(sch, scores, sch.get_loops(scores)[1], lanes)
