"""Ranked traversal on CUDA: walks over ranks in shared memory, one word of four bytes for a node.

A block first searches the ranks of its rows' columns (`hbtvm.strategies.ranks`), which take a byte or two
each: a quarter of the shared memory that values take, so that more rows fit, and the same answers. Trees that
are about perfect are walked as in `hbtvm.strategies.cuda.perfect`; the words of others link a node with the
left one of its children, which lie side by side::

    perfect:  word = column | rank << column bits
              next(n) = 2 * n + (ranks[column] > rank ? 1 : 0)
    others:   word = column | rank << column bits | distance << (column + rank bits)
              next(n) = n + distance + (ranks[column] > rank ? 1 : 0)

A leaf's distance is 0, and no rank is above its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import te, tirx

from hbtvm.runtime.signature import Argument, table
from hbtvm.schedules import ranked_cuda
from hbtvm.schedules.ranked_cuda import SEARCH, entries, is_linked, rank_type
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import Workload
from hbtvm.strategies.cuda.grid import Grid, OnGpu, tiled_tables, tree_table
from hbtvm.strategies.forest import Forest
from hbtvm.strategies.perfect import perfect_levels
from hbtvm.strategies.ranked import RankedTraversal
from hbtvm.strategies.ranks import node_ranks

_WORD_BITS = 31
"""Bits of a word that are used; the sign is not."""


class CudaRankedTraversal(OnGpu, RankedTraversal):
    """Walk over ranks; holds trees of any shape whose columns, ranks and sizes fit words."""

    schedule = ranked_cuda

    def refuse(self, workload: Workload) -> str | None:
        if not is_linked(workload):
            return super().refuse(workload)
        if workload["depth"] == 0:
            return "no tree has a split, and ranked_traversal needs a level to walk"
        bits = _column_bits(workload) + workload["rank_bits"] + _distance_bits(workload)
        if bits > _WORD_BITS:
            return (
                f"{workload['numeric'] + workload['categorical']} columns with up to "
                f"2**{workload['rank_bits']} thresholds each, in trees of {workload['nodes']} nodes, do not "
                "fit ranked_traversal's 32-bit words"
            )
        return None

    def tables(self, forest: Forest, config: Config) -> dict[str, np.ndarray]:
        columns = forest.n_columns
        bits = (columns - 1).bit_length()
        words = forest.column | node_ranks(forest) << bits
        workload, empty = forest.workload(1), 0
        if is_linked(workload):
            # Also where there is no tree.
            empty = ((1 << forest.rank_bits) - 1) << bits
            word, value = _linked(forest, words, bits + forest.rank_bits, empty, workload)
        else:
            levels = perfect_levels(forest)
            above = np.concatenate([levels[0], *levels[:-1]], axis=1)  # entry 0 is never read
            # Below a leaf both children have the same value, so any word is right.
            word = _padded(
                np.where(forest.left[above] >= 0, words[above], 0).astype(np.int32), entries(workload)
            )
            value = _padded(forest.value[levels[-1]], entries(workload))
        return tiled_tables(forest, config, {"word": (word, empty), "value": (value, 0)})

    def arguments(self, workload: Workload, config: Config) -> tuple[Argument, ...]:
        return _arguments(workload, config)

    def function(self, workload: Workload, config: Config) -> Any:
        return _function(workload, config)


def _padded(table: np.ndarray, count: int) -> np.ndarray:
    """A table of shape (T, n, ...) with `count` entries of each tree."""
    return np.pad(table, [(0, 0), (0, count - table.shape[1]), *((0, 0),) * (table.ndim - 2)])


def _linked(
    forest: Forest, words: np.ndarray, bits: int, leaf: int, workload: Workload
) -> tuple[np.ndarray, np.ndarray]:
    """Words and values of trees, shape (T, nodes) and (T, nodes, V), a node's children side by side."""
    trees, nodes = len(forest.offset) - 1, entries(workload)
    place = np.zeros(len(forest.left), np.int64)
    used = np.ones(trees, np.int64)
    value = np.zeros((trees, nodes, forest.value.shape[1]), forest.value_dtype)
    tree = np.repeat(np.arange(trees), np.diff(forest.offset))
    word = np.full((trees, nodes), leaf, np.int32)
    for level in forest.levels():
        split = level[forest.left[level] >= 0]
        ends = level[forest.left[level] < 0]
        value[tree[ends], place[ends]] = forest.value[ends]
        # Places for the children of a level's nodes, tree by tree.
        order = split[np.argsort(tree[split], kind="stable")]
        own = tree[order]
        first = np.searchsorted(own, np.arange(trees))
        left = used[own] + 2 * (np.arange(len(own)) - first[own])
        place[forest.base[order] + forest.left[order]] = left
        place[forest.base[order] + forest.right[order]] = left + 1
        word[own, place[order]] = words[order] | (left - place[order]) << bits
        used += 2 * np.bincount(own, minlength=trees)
    return word, value


def _column_bits(workload: Workload) -> int:
    return int(workload["numeric"] + workload["categorical"] - 1).bit_length()


def _distance_bits(workload: Workload) -> int:
    return int(workload["nodes"]).bit_length()


def _arguments(workload: Workload, config: Config) -> tuple[Argument, ...]:
    columns, count = workload["numeric"] + workload["categorical"], entries(workload)
    bits, inner = _column_bits(workload), int(config["layout"] == "trees")
    if is_linked(workload):
        shift = bits + workload["rank_bits"]
        word = tree_table(
            workload, config, "word", "int32", (count,), "ranked_link",
            bits=bits, below=columns, shift=shift, trees_inner=inner,
        )  # fmt: skip
    else:
        word = tree_table(
            workload, config, "word", "int32", (count,), "ranked_word", bits=bits, below=columns
        )
    return (
        table("rank_threshold", workload["dtype"], (columns, 2 ** workload["rank_bits"]), "sorted"),
        word,
        tree_table(workload, config, "value", workload["value_dtype"], (count, workload["width"])),
    )


def _ranks(grid: Grid, workload: Workload, searched: Any) -> Any:
    """The ranks of the columns of row tiles, shape (tiles, columns, row_tile)."""
    columns, count = grid.stage.columns, workload["numeric"] + workload["categorical"]
    bits, kind = int(workload["rank_bits"]), rank_type(workload)
    shape = (grid.tiles, count, grid.shape.row_tile)

    def narrowed(below: Any, size: int) -> Callable[..., Any]:
        def step(i: Any, c: Any, r: Any) -> Any:
            start = tirx.const(0, "int32") if below is None else below[i, c, r]
            # The comparison is false for NaN, which therefore ranks highest.
            at_most = columns[i, c, r] <= searched[c, start + (size - 1)]
            return start + tirx.Select(at_most, tirx.const(0, "int32"), tirx.const(size, "int32"))

        return step

    # (A reduction over steps would have an initial value that TVM can't split off in a tile's part.)
    below = None
    for n in range(bits):
        below = te.compute(shape, narrowed(below, 1 << (bits - 1 - n)), name=f"{SEARCH}{n}")
    zero = tirx.const(0, kind)
    return te.compute(
        shape, lambda i, c, r: zero if below is None else below[i, c, r].astype(kind), name="ranks"
    )


def _function(workload: Workload, config: Config) -> Any:
    """Return the tensor expressions as a function ready to be scheduled."""
    grid = Grid(workload, config)
    depth, linked = int(workload["depth"]), is_linked(workload)
    bits, rank_bits = _column_bits(workload), int(workload["rank_bits"])
    tables = grid.placeholders(_arguments(workload, config))
    searched, word, value = tables
    ranks = _ranks(grid, workload, searched)
    unroll = int(config["level_unroll"]) if linked else 1
    # Rounded up to whole steps of the unrolled loop: walks that have reached a leaf stay there.
    level = te.reduce_axis((0, -(-depth // unroll) * unroll), "level")

    def above(w: Any, threshold: Any, i: Any, p: Any, x: Any) -> Any:
        row = p * grid.shape.row_threads + x
        rank = ranks[i, w & (2**bits - 1), row].astype("int32")
        return tirx.Select(rank > threshold, tirx.const(1, "int32"), tirx.const(0, "int32"))

    def walk(i: Any, o: Any, g: Any, q: Any, y: Any, p: Any, x: Any) -> Any:
        def down(here: Any, _: Any) -> Any:
            w = word[grid.at(o, g, q, y, here)]
            return here * 2 + above(w, w >> bits, i, p, x)

        def along(state: Any, _: Any) -> Any:
            w = word[grid.at(o, g, q, y, state[0])]
            distance = w >> (bits + rank_bits)
            threshold = (w >> bits) & (2**rank_bits - 1)
            return state[0] + distance + above(w, threshold, i, p, x), distance

        # The reduction ignores its operands; TVM finds the tensors that it depends on only there.
        some = ranks[i, 0, p * grid.shape.row_threads + x].astype("int32")
        if not linked:
            return te.comm_reducer(down, lambda t: tirx.const(1, t), name="descend")(some, axis=level)
        # The state is the node, from the root on, and the last distance, which is 0 at a leaf.
        first = tirx.const(0, "int32"), tirx.const(1, "int32")
        return te.comm_reducer(along, lambda *_: first, name="descend")((some, some), axis=level)

    walked = grid.per_tree(walk, "walk")
    reached = walked[0] if linked else walked
    leaf: Callable[[Any], Any] = (lambda n: n) if linked else (lambda n: n - 2**depth)

    def leaf_value(i: Any, o: Any, g: Any, q: Any, y: Any, p: Any, x: Any, v: Any) -> Any:
        return value[grid.at(o, g, q, y, leaf(reached[i, o, g, q, y, p, x]), v)]

    return grid.function(tables, grid.scores(leaf_value))
