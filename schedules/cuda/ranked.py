"""CUDA schedules of ranked traversal (see `hbtvm.schedules.cuda.steps` for the loops around them)::

for each tile of rows:
    ranks[place(column) + row] = number of thresholds below columns[column, row]   # by all threads
    ...
        for level:                                        # `level_unroll` of them, unrolled
            for tree in together, for row of rows_each:   # independent walks that hide each other's latency
                node[tree, row] = next(node[tree, row])

If threads rank by columns (knob ``ranked``), the first step is::

    for group of columns' thresholds:                     # neighbouring groups by neighbouring threads
        thresholds of the group to registers
        for row of the tile:                              # some of them, unrolled
            ranks[row, group] = number of thresholds below the row's value
"""

from __future__ import annotations

import math
from typing import Any

from hbtvm.schedules.cpu.steps import state_read
from hbtvm.schedules.cpu.traversal import EARLY_EXIT
from hbtvm.schedules.cuda.ranked_layout import (
    BY_COLUMNS,
    BY_ROWS,
    GROUPS,
    MISSING,
    RANKED,
    RankLayout,
    by_columns,
    fills_only,
)
from hbtvm.schedules.cuda.shape import Shape, staged_trees, walk_layout
from hbtvm.schedules.cuda.space import (
    BUSY,
    FEW_ROWS,
    Needs,
    aligned,
    common_default,
    element,
    fills,
    settle,
    settle_walks,
    sum_bytes,
    sum_registers,
    walk_space,
)
from hbtvm.schedules.cuda.steps import (
    bind_threads,
    distribute,
    number_of_read,
    scope,
    split_initial,
    stage_table,
    state_tree,
)
from hbtvm.schedules.cuda.steps import place as place_stages
from hbtvm.schedules.space import Config, Knob, Space
from hbtvm.schedules.workload import Target, Workload, rank_groups_of

SEARCH = "search_"  # prefix of the sblocks of a rank's binary search, before their numbers
_OF_CATEGORIES = 12  # additional registers of a thread that looks up ranks of categories

_RANKED_TOGETHER = 32
"""Unrolled rows of a thread that ranks by columns: they share an address, and their loads overlap."""

_FEW_GROUPS = 4
"""Most groups per column for which ranking by columns is faster than searching: half the time at two or
three, about equal at five (by ``python -m benchmarks.gpu.bounds``)."""

_LEAST_ROWS = 8
"""Fewest rows of a block that loads all groups' thresholds, if that leaves enough blocks."""

_WHOLE = 8
"""Largest depth at which walks with links take all levels without a loop, rather than exit early."""

_BANKS = 32  # of shared memory
_WORD = 4  # bytes of a node
_VECTOR = 4  # words that a thread copies to shared memory at once
_PERFECT_DEPTH = 9  # largest depth of trees padded to perfect trees, whose words take at most 2 KB per tree
FEWEST_ROWS = 32  # rows of the tile for which a forest must fit words
_DEEPER = 3  # levels beyond a balanced tree's depth from which padding takes too much


def is_linked(workload: Workload) -> bool:
    """Whether nodes have links to their children, rather than places in perfect trees."""
    depth = int(workload["depth"])
    balanced = math.ceil(math.log2(max(int(workload["leaves"]), 1)))
    return depth > _PERFECT_DEPTH or depth >= balanced + _DEEPER


def words_fit(workload: Workload, config: Config) -> bool:
    """Whether place, distance and rank fit the words of nodes."""
    ranks = RankLayout.of(workload, config)
    distance = int(workload["nodes"]).bit_length() if is_linked(workload) else 0
    return ranks.place_bits + distance + ranks.bits <= 32


def space(workload: Workload, target: Target) -> Space:
    """Return the knobs for a workload (see `hbtvm.strategies.base.workload_of`) on a CUDA target."""
    depth = int(workload["depth"])
    walks = walk_space(
        workload,
        target,
        needs,
        {"columns": "shared"},
        tuple(sorted({1, 2, 4, 8, *((depth,) if is_linked(workload) and depth <= _WHOLE else ())})),
        lambda config: words_fit(workload, config),
    )
    if not rank_groups_of(workload):
        return walks
    return Space((*walks.knobs, Knob("ranked", (BY_ROWS, BY_COLUMNS), before=BY_ROWS)), walks.valid)


def entries(workload: Workload) -> int:
    """Return the words of a tree, a multiple of a thread's vector copy."""
    count = int(workload["nodes"]) if is_linked(workload) else 2 ** int(workload["depth"])
    return -(-count // _VECTOR) * _VECTOR


def needs(workload: Workload, config: Config) -> Needs:
    """Return the resources of a block of threads."""
    shape, together = Shape.of(config), int(config["together"])
    ranks = RankLayout.of(workload, config).bytes
    values = element(workload["value_dtype"]) * int(workload["width"])
    words = staged_trees(workload, config) * entries(workload)
    words = aligned(words * 4) + aligned(words * values)
    return Needs(
        shape.threads,
        ranks + words + sum_bytes(config),
        18
        + (_OF_CATEGORIES if workload["categorical"] else 0)
        + shape.rows_each * together * 2
        + sum_registers(workload, config),
    )


def default(workload: Workload, target: Target) -> Config:
    """Return a good configuration for unmeasured workloads."""
    linked, depth = is_linked(workload), int(workload["depth"])
    # With few rows, walks with links mostly wait for loads: more threads with fewer trees each.
    waits = linked and not rank_groups_of(workload) and int(workload["rows"]) <= FEW_ROWS
    chosen = common_default(workload, target, 2 * BUSY if waits else BUSY)
    unroll = 2 if depth > 1 else 1
    if linked:
        unroll = depth if depth <= _WHOLE else 1
    chosen = {**chosen, "columns": "shared", "together": 1, "level_unroll": unroll}
    chosen["layout"] = walk_layout(workload, chosen, _WORD)
    if rank_groups_of(workload):
        columns = int(workload["numeric"]) + int(workload["categorical"])
        few = rank_groups_of(workload) <= _FEW_GROUPS * columns
        chosen["ranked"] = BY_COLUMNS if few else BY_ROWS
    if by_columns(chosen):
        return _default_by_columns(chosen, workload, target)
    if int(chosen["row_tile"]) > int(chosen["row_threads"]) and workload["trees"] > 1:
        # Copying words of four bytes is faster than waiting for them in walks; copy once for twice the rows.
        doubled = {name: 2 * int(chosen[name]) for name in ("row_tile", "row_threads")}
        chosen = {**chosen, **doubled, "tables": "shared", "resident": max(1, int(chosen["resident"]) // 2)}
    while not words_fit(workload, chosen):
        rows = int(chosen["row_tile"]) // 2
        chosen = {**chosen, "row_tile": rows, "row_threads": min(rows, int(chosen["row_threads"]))}
    size = entries(workload) * _WORD
    chosen = settle_walks(chosen, workload, target, lambda config: needs(workload, config), size)
    # Without a loop over levels, nvcc interleaves a tile's trees itself: fewer of them, with fewer registers,
    # which is faster where multiprocessors are full of threads, but takes 1.7 times as long where not.
    full = fills(workload, target, int(chosen["row_tile"]) * int(chosen["resident"]))
    return {**chosen, "together": 1} if linked and depth <= _WHOLE and full else chosen


def _default_by_columns(config: Config, workload: Workload, target: Target) -> Config:
    """Adapt a default to ranking by columns: each block loads all thresholds for as many rows as possible."""
    trees = int(workload["trees"])
    while (
        int(config["row_tile"]) < _LEAST_ROWS
        and int(config["tree_threads"]) > 1
        and fills(workload, target, 2 * int(config["row_tile"]))
    ):
        doubled = {name: 2 * int(config[name]) for name in ("row_tile", "row_threads")}
        config = {**config, **doubled, "layout": "nodes", "resident": max(1, int(config["resident"]) // 2)}
        if Shape.of(config).threads > int(target["max_threads_per_block"]):
            halved = {name: int(config[name]) // 2 for name in ("tree_tile", "tree_threads")}
            config = {**config, **halved}
    settled = settle(config, workload, target, lambda chosen: needs(workload, chosen))
    # Several walks at once hide the loads of words that no other warp has read yet.
    for together in (4, 2):
        several = {**settled, "together": together, "tree_tile": together * int(settled["tree_threads"])}
        if int(several["tree_tile"]) < 2 * trees and space(workload, target).contains(several):
            return several
    return settled


def apply(sch: Any, workload: Workload, config: Config) -> None:
    """Schedule the walk's expressions in place (main stage: block ``walk``)."""
    gathered = by_columns(config) and Shape.of(config).row_threads >= _LEAST_ROWS
    placed = place_stages(sch, workload, config, "walk", int(config["together"]), gathered=gathered)
    walk, shared = sch.get_sblock("walk"), needs(workload, config).shared
    level, inner = sch.split(placed.reduction, [None, int(config["level_unroll"])])
    sch.unroll(inner)
    if is_linked(workload) and int(sch.get(level).extent) > 1:
        sch.annotate(level, EARLY_EXIT, 1)
    ranks = RankLayout.of(workload, config)
    everything = [(0, ranks.row_tile), (0, ranks.row_room)] if ranks.grouped else [(0, ranks.room)]
    state_read(sch, walk, "ranks", lambda i, *_: [(i, i + 1), *everything])
    if config["tables"] != "global":
        state_tree(sch, walk, config, "word")
        vector = _VECTOR if config["layout"] == "nodes" else min(_VECTOR, Shape.of(config).tree_tile)
        stage_table(sch, config, walk, "word", placed, shared, vector)
        parts = sch.get_sblock("parts")
        state_tree(sch, parts, config, "value", in_parts=True)
        stage_table(sch, config, parts, "value", placed, shared, vector)
    if ranks.grouped:
        _rank_by_columns(sch, workload, config, placed.rows, shared)
    else:
        rank_by_rows(sch, config, placed.rows, shared, ranks.bits)
    split_initial(sch, placed, [(walk, level)])


def rank_by_rows(
    sch: Any, config: Config, rows: Any, shared: int, steps: int, staged: int = 0, words: int = 0
) -> None:
    """Place binary searches in the loop over tiles of rows, one thread for each word of ranks.

    `steps`: steps of a search.
    `staged`: columns that are copied to shared memory at a time, before their search; 0: none are.
    `words`: words of a column.
    """
    ranks, columns = sch.get_sblock("ranks"), sch.get_sblock("columns")
    searches = [sch.get_sblock(f"{SEARCH}{n}") for n in reversed(range(steps))]
    sch.compute_at(ranks, rows, True)
    word = sch.get_loops(ranks)[-1]
    if staged:
        chunk, word = sch.split(word, [None, staged * words])
        # TVM finds the columns of a chunk as long as threads do not share it out.
        for search in searches:
            sch.compute_at(search, chunk, True)
        sch.compute_at(columns, chunk, True)
        sch.reorder(*reversed(sch.get_loops(columns)[-2:]))
        # Neighbouring threads read neighbouring columns of a row, and write to different banks.
        distribute(sch, config, sch.fuse(*sch.get_loops(columns)[-2:]))
        sch.set_scope(columns, 0, scope(shared))
        sch.storage_align(columns, 0, 1, _BANKS, max(1, _BANKS // staged))
    else:
        sch.compute_inline(columns)
    distribute(sch, config, word)
    sch.set_scope(ranks, 0, scope(shared))
    for search in searches:
        sch.compute_at(search, sch.get_loops(ranks)[-1], True)
        for lane in sch.get_loops(search)[len(sch.get_loops(ranks)) + 1 :]:
            sch.unroll(lane)  # of several rows in a word
        sch.set_scope(search, 0, "local")


def _rank_by_columns(sch: Any, workload: Workload, config: Config, rows: Any, shared: int) -> None:
    """Place the counts of groups' thresholds; a thread keeps the thresholds in registers for all rows."""
    ranks, shape = sch.get_sblock("ranks"), Shape.of(config)
    sch.compute_at(ranks, rows, True)
    row, group = sch.get_loops(ranks)[-2:]
    sch.reorder(group, row)
    _, y, x = sch.split(group, [None, shape.tree_threads, shape.row_threads])
    bind_threads(sch, x, y)
    row, inner = sch.split(row, [None, min(_RANKED_TOGETHER, shape.row_tile)])
    sch.unroll(inner)
    sch.set_scope(ranks, 0, scope(shared))
    value = sch.get_sblock(RANKED)
    sch.compute_at(value, inner, True)
    sch.set_scope(value, 0, "local")
    held = sch.cache_read(ranks, number_of_read(sch, ranks, GROUPS), "local")
    if fills_only(workload):
        missing = sch.get_sblock(MISSING)
        sch.compute_at(missing, x, True)
        sch.set_scope(missing, 0, "local")
    else:
        sch.compute_inline(sch.get_sblock("columns"))
    sch.compute_at(held, x, True)
    for loop in sch.get_loops(held)[-2:]:
        sch.unroll(loop)
