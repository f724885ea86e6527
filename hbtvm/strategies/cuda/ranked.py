"""Ranked traversal on CUDA: walks over ranks in shared memory, one word of four bytes for a node.

A block first searches the ranks of its rows' columns (`hbtvm.strategies.trees.ranks`). A rank takes a byte or
two, a quarter of a value's shared memory, so more rows fit. Each bank of shared memory holds the ranks of one
row, so rows of a warp never conflict (`RankLayout`); wide models compute and lay out ranks differently
(`hbtvm.strategies.cuda.rank_groups`). Nearly perfect trees are walked as in `hbtvm.strategies.cuda.perfect`;
in others, a node's word links to its left child, and the right child precedes the left::

    word    = place of the column | rank << place bits | distance << place bits + rank bits        (unsigned)
    above   = (word >> place bits) - ranks[row, place]
    next(n) = 2 * n + (above < 0 ? 1 : 0)   in a perfect tree's level, whose words have no distance
    next(n) = n + (above >> rank bits)      in others; a leaf has distance 0 and the highest rank

Distance and comparison are one subtraction, whose borrow leads to the right child; one instruction adds it to
a node's number. In perfect trees one funnel shift moves the sign into the number.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import te, tirx

from hbtvm.runtime.package.signature import Argument
from hbtvm.schedules.cuda import ranked as ranked_cuda
from hbtvm.schedules.cuda.ranked import FEWEST_ROWS, entries, is_linked, words_fit
from hbtvm.schedules.cuda.ranked_layout import RankLayout
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import Workload, rank_groups_of
from hbtvm.strategies.columns import column_tables
from hbtvm.strategies.cuda.grid import Grid, OnGpu, padded, tiled_tables, tree_table
from hbtvm.strategies.cuda.rank_groups import group_arguments, group_tables, node_groups, ranks_by_columns
from hbtvm.strategies.cuda.rank_search import search, search_argument, search_table
from hbtvm.strategies.trees.forest import Forest
from hbtvm.strategies.trees.perfect import perfect_levels
from hbtvm.strategies.trees.ranked import RankedTraversal
from hbtvm.strategies.trees.ranks import node_ranks


class CudaRankedTraversal(OnGpu, RankedTraversal):
    """Walk over ranks; supports trees of any shape whose columns, ranks and sizes fit words."""

    schedule = ranked_cuda

    def refuse(self, workload: Workload) -> str | None:
        if not is_linked(workload):
            return super().refuse(workload)
        if workload["depth"] == 0:
            return "no tree has a split, and ranked_traversal needs a level to walk"
        if not words_fit(workload, {"row_tile": FEWEST_ROWS}):
            return (
                f"{workload['numeric'] + workload['categorical']} columns with up to "
                f"2**{workload['rank_bits']} thresholds each, in trees of {workload['nodes']} nodes, do not "
                "fit ranked_traversal's 32-bit words"
            )
        return None

    def _shared(self, forest: Forest) -> dict[str, np.ndarray]:
        return {**column_tables(forest), **({} if self._several(forest) else search_table(forest))}

    @staticmethod
    def _several(forest: Forest) -> bool:
        """Whether configurations differ in their tables of thresholds."""
        return rank_groups_of(forest.workload(1)) > 0

    def tables(self, forest: Forest, config: Config) -> dict[str, np.ndarray]:
        workload = forest.workload(1)
        ranks = RankLayout.of(workload, config)
        bits, rank_bits = ranks.place_bits, ranks.bits
        number, rank = node_groups(forest) if ranks.grouped else (forest.column, node_ranks(forest))
        words = ranks.place(number.astype(np.int64)) | rank.astype(np.int64) << bits
        if is_linked(workload):
            # Also the padding word for missing trees.
            empty = ((1 << rank_bits) - 1) << bits
            word, value = _linked(forest, words, bits + rank_bits, empty, workload)
        else:
            levels, empty = perfect_levels(forest), 0
            above = np.concatenate([levels[0], *levels[:-1]], axis=1)  # entry 0 is never read
            # Below a leaf both children have the same value, so any word is right.
            above_words = np.where(forest.left[above] >= 0, words[above], 0)
            word = padded(above_words.astype(np.uint32), entries(workload))
            value = padded(forest.value[levels[-1]], entries(workload))
        word = word.view(np.int32)  # the sign is a bit like others
        tiled = tiled_tables(
            forest, config, {"word": (word, np.uint32(empty).view(np.int32)), "value": (value, 0)}
        )
        if ranks.grouped:
            return {**group_tables(forest, ranks), **tiled}
        return {**(search_table(forest) if self._several(forest) else {}), **tiled}

    def arguments(self, workload: Workload, config: Config) -> tuple[Argument, ...]:
        count, ranks = entries(workload), RankLayout.of(workload, config)
        bounds = {"bits": ranks.place_bits, "below": ranks.below}
        if is_linked(workload):
            top = ranks.place_bits + ranks.bits
            bounds |= {"top": top, "trees_inner": int(config["layout"] == "trees")}
        kind = "placed_link" if is_linked(workload) else "placed_rank"
        searched = group_arguments(workload, ranks) if ranks.grouped else (search_argument(workload),)
        return (
            *searched,
            tree_table(workload, config, "word", "int32", (count,), kind, **bounds),
            tree_table(workload, config, "value", workload["value_dtype"], (count, workload["width"])),
        )

    def function(self, workload: Workload, config: Config) -> Any:
        """Return the tensor expressions as a function ready to be scheduled."""
        grid = Grid(workload, config)
        depth, linked = int(workload["depth"]), is_linked(workload)
        layout = RankLayout.of(workload, config)
        bits, rank_bits = layout.place_bits, layout.bits
        tables = grid.placeholders(self.arguments(workload, config))
        *searched, word, value = tables
        if layout.grouped:
            ranks = ranks_by_columns(grid, layout, *searched)
        else:
            ranks = _ranks(grid, workload, layout, *searched)
        unroll = int(config["level_unroll"]) if linked else 1
        # Rounded up to whole steps of the unrolled loop: walks that have reached a leaf stay there.
        level = te.reduce_axis((0, -(-depth // unroll) * unroll), "level")

        def shifted(w: Any, by: int) -> Any:
            return w >> tirx.const(by, "uint32")

        def above(w: Any, i: Any, p: Any, x: Any) -> Any:
            place = (w & tirx.const(2**bits - 1, "uint32")).astype("int32")
            if layout.grouped:
                rank = ranks[i, p * grid.shape.row_threads + x, place]
            else:
                # Places leave the row's bits free (row counts are powers of two), so `or` adds them.
                at = (place | (x * layout.packed)) + p * (grid.shape.row_threads * layout.packed)
                rank = ranks[i, at]
            # (TVM assumes that unsigned differences do not wrap.)
            return shifted(w, bits).astype("int32") - rank.astype("int32")

        def walk(i: Any, o: Any, g: Any, q: Any, y: Any, p: Any, x: Any) -> Any:
            def down(here: Any, first: Any) -> Any:
                w = word[grid.at(o, g, q, y, first + here)].astype("uint32")
                return (here << 1) | shifted(above(w, i, p, x).astype("uint32"), 31).astype("int32")

            def along(state: Any, _: Any) -> Any:
                w = word[grid.at(o, g, q, y, state[0])].astype("uint32")
                return state[0] + (above(w, i, p, x) >> rank_bits), shifted(w, bits + rank_bits).astype(
                    "int32"
                )

            # TVM finds the tensors that a reduction depends on only in its operands.
            rank = (ranks[i, 0, x] if layout.grouped else ranks[i, x]).astype("int32")
            if not linked:
                # The nodes of a level are adjacent, level by level from the root.
                first = tirx.shift_left(tirx.const(1, "int32"), level.var)
                first = tirx.Select(rank >= 0, first, first)
                return te.comm_reducer(down, lambda t: tirx.const(0, t), name="descend")(first, axis=level)
            # The state is the node, from the root on, and the last distance, which is 0 at a leaf.
            start = tirx.const(0, "int32"), tirx.const(1, "int32")
            return te.comm_reducer(along, lambda *_: start, name="descend")((rank, rank), axis=level)

        walked = grid.per_tree(walk, "walk")
        reached = walked[0] if linked else walked

        def leaf_value(i: Any, o: Any, g: Any, q: Any, y: Any, p: Any, x: Any, v: Any) -> Any:
            return value[grid.at(o, g, q, y, reached[i, o, g, q, y, p, x], v)]

        return grid.function(tables, grid.scores(leaf_value))


def _linked(
    forest: Forest, words: np.ndarray, bits: int, leaf: int, workload: Workload
) -> tuple[np.ndarray, np.ndarray]:
    """Return words and values of trees, shape (T, nodes) and (T, nodes, V); siblings are adjacent."""
    trees, nodes = len(forest.offset) - 1, entries(workload)
    place = np.zeros(len(forest.left), np.int64)
    used = np.ones(trees, np.int64)
    value = np.zeros((trees, nodes, forest.value.shape[1]), forest.value_dtype)
    tree = np.repeat(np.arange(trees), np.diff(forest.offset))
    word = np.full((trees, nodes), leaf, np.uint32)
    for level in forest.levels():
        split = level[forest.left[level] >= 0]
        ends = level[forest.left[level] < 0]
        value[tree[ends], place[ends]] = forest.value[ends]
        # Places for the children of a level's nodes, tree by tree.
        order = split[np.argsort(tree[split], kind="stable")]
        tree_of = tree[order]
        first = np.searchsorted(tree_of, np.arange(trees))
        left = used[tree_of] + 2 * (np.arange(len(tree_of)) - first[tree_of]) + 1
        place[forest.base[order] + forest.left[order]] = left
        place[forest.base[order] + forest.right[order]] = left - 1
        word[tree_of, place[order]] = words[order] | (left - place[order]) << bits
        used += 2 * np.bincount(tree_of, minlength=trees)
    return word, value


def _ranks(grid: Grid, workload: Workload, ranks: RankLayout, searched: Any) -> Any:
    """Return the ranks of row tiles' columns, shape (tiles, room), in the layout of `RankLayout.place`."""
    columns, count, rows, pack = grid.stage.columns, ranks.count, ranks.row_tile, ranks.packed
    shape = (grid.tiles, ranks.room)

    def value(i: Any, e: Any) -> Any:
        column, row = e // (pack * rows) * pack + e % pack, e // pack % rows
        if count % pack:
            column = tirx.Select(column < count, column, count - 1)
        return column, columns[i, column, row]

    found = search(workload, shape, value, searched)
    return te.compute(shape, lambda i, e: found[i, e].astype(ranks.dtype), name="ranks")
