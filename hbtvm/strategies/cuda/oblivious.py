"""Oblivious strategy on CUDA: a thread compares up to four rows at once, in the bytes of a word.

A tree of depth d makes d tests, each the same for all rows, so nothing is walked. A block first searches the
ranks of its rows' columns (`hbtvm.strategies.trees.ranks`). A word holds one column's ranks of as many of a
thread's rows as fit, in lanes of one byte, or of two if a rank or a leaf's number takes more::

    sum           = (word & low) + (limit[t, l] & low)       # low: all bits of a lane but its highest
    above         = majority(word, limit[t, l], sum)         # highest bit of a lane: its rank is above
    leaf[t, word] = (leaf >> 1) & low | above & ~low         # from the last level to the first
    score[r]      = sum over trees t of value[t, leaf[t, r]]

A limit is the highest number of a lane less the threshold's rank, in all lanes: the sum carries if the row's
rank is above. Ranks that leave a lane's highest bit free take the plain sum of word and limit. Threads of a
warp that have the same tree read adjacent words, and the tests of a tree by few vector loads.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import te, tirx

from hbtvm.runtime.package.signature import Argument
from hbtvm.schedules.cuda import oblivious as oblivious_cuda
from hbtvm.schedules.cuda.oblivious import RankLanes, leaves_room, levels_room
from hbtvm.schedules.cuda.shape import Shape
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import Workload
from hbtvm.strategies.columns import column_tables
from hbtvm.strategies.cuda.grid import Grid, OnGpu, padded, tiled_tables, tree_table
from hbtvm.strategies.cuda.rank_search import search, search_argument, search_table
from hbtvm.strategies.trees.forest import Forest
from hbtvm.strategies.trees.oblivious import Oblivious, level_tests, never
from hbtvm.strategies.trees.perfect import perfect_levels


class CudaOblivious(OnGpu, Oblivious):
    """Leaf numbers from one comparison per level; for trees whose levels each make one test."""

    schedule = oblivious_cuda

    def _shared(self, forest: Forest) -> dict[str, np.ndarray]:
        return {**column_tables(forest), **search_table(forest)}

    def tables(self, forest: Forest, config: Config) -> dict[str, np.ndarray]:
        lanes = RankLanes.of(forest.workload(1), config)
        column, rank = level_tests(forest)
        # From the last level to the first, as the kernel reads them.
        place = padded(column[:, ::-1] * np.int32(lanes.words), levels_room(forest.depth))
        limit = padded(lanes.limit(rank[:, ::-1]), levels_room(forest.depth))
        value = padded(forest.value[perfect_levels(forest)[-1]], leaves_room(forest.depth))
        empty = lanes.limit(np.array(never(forest)))
        return tiled_tables(
            forest, config, {"place": (place, 0), "limit": (limit, empty), "value": (value, 0)}
        )

    def arguments(self, workload: Workload, config: Config) -> tuple[Argument, ...]:
        lanes, levels = RankLanes.of(workload, config), (levels_room(workload["depth"]),)
        values = (leaves_room(workload["depth"]), workload["width"])
        return (
            search_argument(workload),
            tree_table(workload, config, "place", "int32", levels, "index", below=lanes.below),
            tree_table(workload, config, "limit", "int32", levels),
            tree_table(workload, config, "value", workload["value_dtype"], values),
        )

    def function(self, workload: Workload, config: Config) -> Any:
        """Return the tensor expressions as a function ready to be scheduled."""
        grid, lanes = Grid(workload, config), RankLanes.of(workload, config)
        depth, threads = int(workload["depth"]), grid.shape.row_threads
        tables = grid.placeholders(self.arguments(workload, config))
        searched, place, limit, value = tables
        ranks = _ranks(grid, workload, lanes, searched)
        level = te.reduce_axis((0, depth), "level")

        def word(number: int) -> Any:
            return tirx.const(number, "uint32")

        low, high = word(lanes.low), word(lanes.high)

        def above(a: Any, b: Any) -> Any:
            if lanes.spare:
                return a + b
            total = (a & low) + (b & low)
            return a & b | total & (a | b)

        def leaves(i: Any, o: Any, g: Any, q: Any, y: Any, w: Any, x: Any) -> Any:
            def step(leaf: Any, _: Any) -> Any:
                rank = ranks[i, place[grid.at(o, g, q, y, level)] + (w * threads + x)].astype("uint32")
                bound = limit[grid.at(o, g, q, y, level)].astype("uint32")
                return (tirx.shift_right(leaf, word(1)) & low) | (above(rank, bound) & high)

            # TVM finds the tensors that a reduction depends on only in its operand.
            return te.comm_reducer(step, lambda t: tirx.const(0, t), name="pass")(
                ranks[i, x].astype("uint32"), axis=level
            )

        shape = grid.shape
        axes = (shape.trees_each, shape.tree_threads, shape.rows_each // lanes.packed, threads)
        passed = te.compute((grid.tiles, grid.tree_tiles, grid.groups, *axes), leaves, name="leaves")

        def leaf_value(i: Any, o: Any, g: Any, q: Any, y: Any, p: Any, x: Any, v: Any) -> Any:
            by_lane = passed[i, o, g, q, y, p // lanes.packed, x]
            first = p % lanes.packed * lanes.bits + (lanes.bits - depth)
            leaf = tirx.shift_right(by_lane, first.astype("uint32")) & word(2**depth - 1)
            return value[grid.at(o, g, q, y, leaf.astype("int32"), v)]

        return grid.function(tables, grid.scores(leaf_value))


def _ranks(grid: Grid, workload: Workload, lanes: RankLanes, searched: Any) -> Any:
    """Return the ranks of row tiles, shape (tiles, room): column by column, a word for several rows."""
    columns, shape = grid.stage.columns, Shape.of(grid.config)

    def value(i: Any, e: Any, k: Any) -> tuple[Any, Any]:
        column, word, x = (
            e // lanes.words,
            e // shape.row_threads % (shape.rows_each // lanes.packed),
            e % shape.row_threads,
        )
        row = (word * lanes.packed + k) * shape.row_threads + x
        return column, columns[i, column, row]

    found = search(workload, (grid.tiles, lanes.room, lanes.packed), value, searched)

    def joined(i: Any, e: Any) -> Any:
        word = found[i, e, 0].astype(lanes.dtype)
        for k in range(1, lanes.packed):
            word = word | tirx.shift_left(
                found[i, e, k].astype(lanes.dtype), tirx.const(k * lanes.bits, lanes.dtype)
            )
        return word

    return te.compute((grid.tiles, lanes.room), joined, name="ranks")
