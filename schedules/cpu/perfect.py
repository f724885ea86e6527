"""CPU schedules of perfect tree traversal.

The loops are those of `steps.place`, with these stages inside (vectors of rows), each unrolled::

    for tree in together, for register: node = <tests of the first `top_levels` levels>
    for each level below:
        for tree in together, for register:   # independent walks that hide each other's latency
            node[tree, register] = next(node[tree, register])
"""

from __future__ import annotations

from collections.abc import Mapping
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
    state_tile,
    vector_lanes,
)
from hbtvm.schedules.space import Config, Knob, Space
from hbtvm.schedules.workload import Target, Workload, apart_of

MOST_PERMUTED = 8  # deepest level for permutes: it has 128 nodes, in eight registers
_WALKED = {4: 1.0, 2: 1.02, 1: 1.06}
"""By vectors of rows that share the loads of a tree's tables: relative time of a vector."""

_BYTES_WALKED = {8: 1.0, 4: 1.15}
"""The same if permutes of bytes look up columns."""

_TOP, _TOP_OF_BYTES = 4, 3
"""Levels whose nodes are all tested; of byte columns if 8 vectors share a tree's loads or trees are deep."""

_DEEP, _LANES = 7, 16  # such trees' least depth; numbers of a register of byte columns

_MOST_COLUMNS, _MOST_BYTES = 1 << 16, 1 << 7  # columns of words and of bytes
_WALKED_DEPTH = 9  # deepest perfect trees of which tiles of eight fit the first-level cache, about
_TESTED, _COLUMNS_PER_TREE = 6, 2
"""Leaves that vectors of bytes test while a walk takes a level; columns whose keys take less time than words
save for each tree. Both by estimates (`benchmarks.arm`)."""

_ROWS_OF_WORDS, _NODE_BYTES, _CACHE = 16, 12, 1 << 19
"""Rows that share a tile of trees; bytes of a word and a leaf; bytes that the second-level cache keeps."""

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
        if by_words(config) and not (
            by_row
            and config["lanes"] == config["vectors"] == config["top_levels"] == 1
            and config["together"] == config["tree_tile"]
        ):
            return False
        if by_bytes(config) and (int(config["permute_levels"]) < depth or config["lanes"] != _LANES):
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

    depth, rows, words = workload["depth"], int(workload["rows"]), _has_words(workload, target)
    count = workload["numeric"] + workload["categorical"]
    wide = int(target["vector_bits"]) >= 256 and len(row_tiles(rows, vector_lanes(target, "float32"))) > 1
    permuted: tuple[int, ...] = (4, 5, 6, 7, MOST_PERMUTED) if wide else ()
    if is_arm(target) and workload["dtype"] == "float32" and rows >= SMALL_BATCH:
        permuted = (5, 6, 7)  # the last has 64 nodes, `MAX_BY_BYTES`
    scalar = words and rows > SMALL_BATCH
    common = common_knobs(workload, target)
    return Space(
        (
            *(Knob("lanes", (1, *one.choices)) if scalar and one.name == "lanes" else one for one in common),
            Knob("together", (1, 2, 4, 8)),
            Knob("top_levels", tuple(range(1, min(depth, 5) + 1))),
            Knob("permute_levels", (0, *(n for n in permuted if n <= depth))),
            lookup_knob("node_lookup", target, 2**depth, shared=False),
            lookup_knob("column_lookup", target, count, shared=rows <= SMALL_BATCH),
            lookup_knob("leaf_lookup", target, 2**depth * workload["width"], shared=rows > 1),
            *((Knob("words", (0, 1), before=0),) if words else ()),
            *((Knob("bytes", (0, 1), before=0),) if permutes_bytes(workload, target) else ()),
        ),
        valid,
    )


def by_words(config: Config) -> bool:
    """Whether a node is a word, and walks are scalar."""
    return bool(config.get("words"))


def by_bytes(config: Config) -> bool:
    """Whether a node's column is a byte, and levels below the first permute bytes."""
    return bool(config.get("bytes"))


def words_pay(workload: Workload, target: Target) -> bool:
    """Whether scalar walks of words are the default: on Arm, for trees that vectors do not test whole."""
    columns, trees = workload["numeric"] + workload["categorical"], workload["trees"] * workload["groups"]
    return (
        _has_words(workload, target)
        and workload["depth"] <= _WALKED_DEPTH
        and workload["leaves"] > _TESTED * workload["depth"]
        and columns <= _COLUMNS_PER_TREE * trees
    )


def _words(workload: Workload, target: Target) -> Config:
    """Return a good configuration for scalar walks of words."""
    tile = min(8, 1 << (int(workload["trees"]) - 1).bit_length())  # walks that hide each other's latency
    # Rows share what they fetch of tables that the second-level cache does not keep. Apple's is large.
    size = int(workload["trees"] * workload["groups"]) * _NODE_BYTES << int(workload["depth"])
    alone = workload["rows"] < _ROWS_OF_WORDS or size <= _CACHE or str(target["mcpu"]).startswith("apple")
    scalar = dict.fromkeys(("node_lookup", "column_lookup", "leaf_lookup"), "scalar")
    return {
        **scalar,
        "axis": "rows",
        "row_tile": 1 if alone else _ROWS_OF_WORDS,
        "lanes": 1,
        "vectors": 1,
        "tree_tile": tile,
        "together": tile,
        "order": "trees",
        "top_levels": 1,
        "permute_levels": 0,
        "words": 1,
    }


def _has_words(workload: Workload, target: Target) -> bool:
    """Whether the knob ``words`` is one of a workload's."""
    columns = workload["numeric"] + workload["categorical"]
    able = is_arm(target) and workload["dtype"] == "float32" and not apart_of(workload)
    return able and columns <= _MOST_COLUMNS


def permutes_bytes(workload: Workload, target: Target) -> bool:
    """Whether the knob ``bytes`` is one of a workload's: an instruction permutes 64 or 128 columns."""
    columns = workload["numeric"] + workload["categorical"]
    able = "avx512vbmi" in target.get("features", ()) and workload["dtype"] == "float32"
    return (
        able and columns <= _MOST_BYTES and workload["depth"] <= MOST_PERMUTED and int(workload["rows"]) > 1
    )


def default(workload: Workload, target: Target) -> Config:
    """Return a good single-thread configuration for unmeasured workloads."""
    if words_pay(workload, target):
        return _words(workload, target)
    lanes, rows = vector_lanes(target, workload["dtype"])[-1], int(workload["rows"])
    depth, by_row = workload["depth"], rows >= lanes
    # Narrow vectors of trees: assembling values looked up lane by lane is cheap.
    narrow = min(lanes, 8)
    count = workload["numeric"] + workload["categorical"]
    known = space(workload, target)
    levels = next(knob for knob in known.knobs if knob.name == "permute_levels")
    top = min(depth, _TOP if by_row else 3)
    # Permutes of wider vectors hold more entries and save more scalar loads, so they pay for more levels.
    most = 5 if is_arm(target) else 2 * (lanes.bit_length() - 1)
    permuted = max(int(n) for n in levels.choices if int(n) <= most)
    permuted = permuted if by_row and permuted > top else 0
    fast = gathers(target)
    common: Config = {
        "lanes": lanes if by_row else narrow,
        "order": "trees",
        "top_levels": top,
        "permute_levels": permuted,
        "node_lookup": lookup_default(target, 2**depth, False),
        "column_lookup": lookup_default(target, count, not by_row),
        "leaf_lookup": lookup_default(target, 2**depth * workload["width"], by_row),
        **({"words": 0} if _has_words(workload, target) else {}),
        **({"bytes": int(fast and permuted == depth)} if permutes_bytes(workload, target) else {}),
    }
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
        if by_bytes(common) and vectors == 4:
            vectors = _vectors_of_rows(rows, lanes, _BYTES_WALKED)
            together = 1
        if depth <= _SHALLOW:  # the smaller a tree's tables, the more trees fit the first-level cache
            sizes += (16, 32)
    tile = least_padded(workload["trees"], sizes)
    if by_bytes(common) and (vectors > 4 or depth >= _DEEP):
        common["top_levels"] = _TOP_OF_BYTES
    return {
        **common,
        "axis": "rows",
        "row_tile": vectors * lanes,
        "vectors": vectors,
        "tree_tile": tile,
        "together": min(together, tile),
    }


def _vectors_of_rows(rows: int, lanes: int, walked: Mapping[int, float] = _WALKED) -> int:
    """Return the vectors of rows for the least time of a call, padding included."""
    return min(walked, key=lambda vectors: -(-rows // (vectors * lanes)) * vectors * walked[vectors])


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
    walks, row = [f"walk_{level}" for level in range(top, depth + 1)], 3 if config["axis"] == "trees" else 4
    if by_words(config):
        for walk in walks:
            state_tile(sch, sch.get_sblock(walk), "keys", row, by_row=True)
        sch.compute_at(sch.get_sblock("keys"), placed.tile, True)
        walks = []
    finish(sch, config, placed, [], [(walk, row) for walk in walks])


def _unrolled(workload: Workload, config: Config) -> int:
    """Return the deepest level whose registers are unrolled.

    Scalar lookups make much code, which takes long to compile and gains nothing from unrolling: their loads
    hide each other's latency anyway.
    """
    depth = int(workload["depth"])
    return depth if depth <= MOST_PERMUTED else max(int(config["permute_levels"]), int(config["top_levels"]))
