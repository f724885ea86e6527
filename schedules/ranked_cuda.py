"""CUDA schedules of ranked traversal (see `hbtvm.schedules.cuda` for the loops around them)::

for each tile of rows:
    ranks[place(column) + row] = number of thresholds below columns[column, row]   # by all threads
    ...
        for level:                                        # `level_unroll` of them, unrolled
            for tree in together, for row of rows_each:   # independent walks that hide each other's latency
                node[tree, row] = next(node[tree, row])
"""

from __future__ import annotations

import math
from typing import Any

from hbtvm.schedules.cpu import state_read
from hbtvm.schedules.cuda import distribute, scope, split_initial, stage_table, state_tree
from hbtvm.schedules.cuda import place as place_stages
from hbtvm.schedules.cuda_shape import Shape, staged_trees
from hbtvm.schedules.cuda_space import (
    Needs,
    aligned,
    common_default,
    element,
    settle,
    sum_bytes,
    sum_registers,
    walk_space,
)
from hbtvm.schedules.space import Config, Space
from hbtvm.schedules.traversal_cpu import EARLY_EXIT
from hbtvm.schedules.workload import Target, Workload

SEARCH = "search_"
"""Names of the blocks of a rank's binary search begin so; their numbers follow."""

_VECTOR = 4
"""Words that a thread copies to shared memory at once."""

_PERFECT_DEPTH = 9
"""Depth up to which trees are padded to perfect ones, whose words are at most 2 KB a tree."""

FEWEST_ROWS = 32
"""Rows of a tile with which a forest has to fit words."""

_DEEPER = 3
"""Levels more than a balanced tree of as many leaves has, from which on padding takes too much."""


def is_linked(workload: Workload) -> bool:
    """Whether nodes have links to their children, rather than being padded to perfect trees."""
    depth = int(workload["depth"])
    balanced = math.ceil(math.log2(max(int(workload["leaves"]), 1)))
    return depth > _PERFECT_DEPTH or depth >= balanced + _DEEPER


def rank_type(workload: Workload) -> str:
    """Type of a column's rank."""
    return "uint8" if workload["rank_bits"] <= 8 else "uint16"


def packed(workload: Workload) -> int:
    """Ranks of a word of shared memory, 4 bytes: those of neighbouring columns of one row."""
    return 4 // element(rank_type(workload))


def place(workload: Workload, config: Config, column: Any) -> Any:
    """Where the rank of a column of a tile's first row is; those of other rows are `packed` apart each."""
    pack = packed(workload)
    return column // pack * pack * int(config["row_tile"]) + column % pack


def rank_row(workload: Workload, config: Config) -> int:
    """Where the first rank of a tile's last row is."""
    return packed(workload) * (int(config["row_tile"]) - 1)


def rank_room(workload: Workload, config: Config) -> int:
    """Ranks of a tile, those of columns that fill up words included."""
    pack, count = packed(workload), int(workload["numeric"]) + int(workload["categorical"])
    return -(-count // pack) * pack * int(config["row_tile"])


def place_bits(workload: Workload, config: Config) -> int:
    """Bits that places take."""
    return (rank_room(workload, config) - 1).bit_length()


def words_fit(workload: Workload, row_tile: int) -> bool:
    """Whether the words of nodes have room for all of it, with tiles of so many rows."""
    distance = int(workload["nodes"]).bit_length() if is_linked(workload) else 0
    return place_bits(workload, {"row_tile": row_tile}) + distance + int(workload["rank_bits"]) <= 32


def space(workload: Workload, target: Target) -> Space:
    """Knobs for a workload (see `hbtvm.strategies.base.workload_of`) on a CUDA target."""
    return walk_space(
        workload,
        target,
        needs,
        {"columns": "shared"},
        (1, 2, 4, 8),
        lambda config: words_fit(workload, int(config["row_tile"])),
    )


def entries(workload: Workload) -> int:
    """Words of a tree, a multiple of what a thread copies at once."""
    count = int(workload["nodes"]) if is_linked(workload) else 2 ** int(workload["depth"])
    return -(-count // _VECTOR) * _VECTOR


def needs(workload: Workload, config: Config) -> Needs:
    """What a block takes."""
    shape, together = Shape.of(config), int(config["together"])
    ranks = aligned(rank_room(workload, config) * element(rank_type(workload)))
    values = element(workload["value_dtype"]) * int(workload["width"])
    words = staged_trees(workload, config) * entries(workload)
    words = aligned(words * 4) + aligned(words * values)
    return Needs(
        shape.threads,
        ranks + words + sum_bytes(config),
        28 + shape.rows_each * together * 5 + sum_registers(workload, config),
    )


def default(workload: Workload, target: Target) -> Config:
    """A good configuration where nothing was measured."""
    chosen = common_default(workload, target)
    linked = is_linked(workload)
    unroll = 1 if linked or workload["depth"] == 1 else 2
    chosen = {**chosen, "columns": "shared", "together": 1, "level_unroll": unroll}
    if int(chosen["row_tile"]) > int(chosen["row_threads"]) and workload["trees"] > 1:
        # Words of four bytes are copied faster than walks that wait for them are.
        chosen["tables"] = "shared"
    while not words_fit(workload, int(chosen["row_tile"])):
        rows = int(chosen["row_tile"]) // 2
        chosen = {**chosen, "row_tile": rows, "row_threads": min(rows, int(chosen["row_threads"]))}
    return settle(chosen, workload, target, lambda config: needs(workload, config))


def apply(sch: Any, workload: Workload, config: Config) -> None:
    """Schedule the walk's expressions in place (main stage: block ``walk``)."""
    placed = place_stages(sch, workload, config, "walk", int(config["together"]))
    walk, shared = sch.get_sblock("walk"), needs(workload, config).shared
    level, inner = sch.split(placed.reduction, [None, int(config["level_unroll"])])
    sch.unroll(inner)
    if is_linked(workload):
        sch.annotate(level, EARLY_EXIT, 1)
    room = rank_room(workload, config)
    state_read(sch, walk, "ranks", lambda i, *_: [(i, i + 1), (0, room)])
    if config["tables"] != "global":
        state_tree(sch, walk, config, "word")
        vector = _VECTOR if config["layout"] == "nodes" else min(_VECTOR, Shape.of(config).tree_tile)
        stage_table(sch, config, walk, "word", placed, shared, vector)
        parts = sch.get_sblock("parts")
        state_tree(sch, parts, config, "value", in_parts=True)
        stage_table(sch, config, parts, "value", placed, shared, vector)
    ranks = sch.get_sblock("ranks")
    sch.compute_inline(sch.get_sblock("columns"))
    sch.compute_at(ranks, placed.rows, True)
    distribute(sch, config, sch.get_loops(ranks)[-1])
    sch.set_scope(ranks, 0, scope(shared))
    for n in reversed(range(int(workload["rank_bits"]))):
        step = sch.get_sblock(f"{SEARCH}{n}")
        sch.compute_at(step, sch.get_loops(ranks)[-1], True)
        sch.set_scope(step, 0, "local")
    split_initial(sch, placed, [(walk, level)])
