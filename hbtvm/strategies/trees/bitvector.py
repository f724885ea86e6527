"""Bitvector strategy: test all nodes of a tree, without a walk.

Each tree keeps a vector of bits, one for each leaf. A node whose test fails clears the
leaves of its left subtree; the lowest bit that survives all nodes is the leaf (Lucchese
et al., QuickScorer, SIGIR'15). It is Hummingbird's GEMM strategy over (compare, AND) in
place of (multiply, add)::

    bits[t, r]  = AND over nodes j of (column[feature[t, j], r] <= threshold[t, j] ? ~0 : mask[t, j])
    score[r]    = sum over trees t of value[t, lowest_bit(bits[t, r])]

Where vectors hold rows, trees of more leaves than a word of 32 bits has are cut into pieces (see `pieces`):
words of 64 bits would fill twice the registers for every node, and most nodes have few leaves below them.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from tvm import te, tirx

from hbtvm.runtime.package.signature import Argument
from hbtvm.schedules.cpu import bitvector as bitvector_cpu
from hbtvm.schedules.cpu.bitvector import CUT_DEPTH, MAX_LEAVES, MOST_CUT, in_pieces
from hbtvm.schedules.space import Config
from hbtvm.schedules.workload import Workload, apart_of
from hbtvm.strategies.base import Strategy, leaf_ranges, rank_in_tree, spread, tile_trees
from hbtvm.strategies.memo import remembered
from hbtvm.strategies.scores import StageBuilder, leaf_rows, leaf_table, tree_table
from hbtvm.strategies.trees.forest import Forest
from hbtvm.strategies.trees.pieces import cut

_PIECE = 32  # most leaves of a piece


def word_bits(leaves: int) -> int:
    """Return the bits of the word that has one for each of a tree's leaves: 32 or 64."""
    return 32 if leaves <= 32 else 64


def table_leaves(leaves: int) -> int:
    """Return the number of entries of a tree's leaf table.

    The lowest set bit of b is ``popcount(~b & (b - 1))``, which would overflow for a word whose
    sign bit alone is set. So the last leaf of a full word has no bit: it is the leaf when
    no bit is left, and the formula then gives the word's width as its index.
    """
    return leaves + 1 if leaves == word_bits(leaves) else leaves


EMPTY = {"column": 0, "threshold": np.inf, "mask": -1, "value": 0}
"""The tables' padding for missing nodes and trees."""


def tree_tables(
    forest: Forest, index_dtype: str, rows: int, step: int = 1, leaves: int = 0
) -> dict[str, np.ndarray]:
    """Return the tables of all trees.

    `rows`: entries of a tree's leaf table, at least `table_leaves`.
    `step`: the number of nodes is rounded up to a multiple of this.
    `leaves`: leaves for which a tree has room; those of the largest, if that has more.
    Returns ``column``, ``threshold`` and ``mask``, shape (T, splits), and ``value``, shape (T, `rows`, V).
    """
    sizes = np.diff(forest.offset)
    leaves = max(leaves, int(sizes.max() + 1) // 2)
    bits = word_bits(leaves)
    word = np.dtype(f"int{bits}")
    start, count = leaf_ranges(forest)
    tree = np.repeat(np.arange(len(sizes)), sizes)
    is_leaf = forest.left < 0
    split = np.flatnonzero(~is_leaf)
    slot = rank_in_tree(tree[split], len(sizes))

    # A node's left subtree holds the leaves start .. start + size - 1: clear those bits.
    size = count[(forest.offset[tree] + forest.left)[split]]
    ones = np.uint64(2**64 - 1)
    cleared = (ones >> (64 - size).astype(np.uint64)) << start[split].astype(np.uint64)
    keep = ~cleared
    if leaves == bits:
        keep &= ~(np.uint64(1) << np.uint64(bits - 1))
    masks = keep.astype(f"uint{bits}").view(word)

    splits = node_count(leaves, step)
    column = np.full((len(sizes), splits), EMPTY["column"], index_dtype)
    threshold = np.full((len(sizes), splits), EMPTY["threshold"], forest.dtype)
    mask = np.full((len(sizes), splits), EMPTY["mask"], word)
    column[tree[split], slot] = forest.column[split]
    threshold[tree[split], slot] = forest.threshold[split]
    mask[tree[split], slot] = masks
    value = np.zeros((len(sizes), rows, forest.value.shape[1]), forest.value_dtype)
    leaf = np.flatnonzero(is_leaf)
    index = start[leaf]
    value[tree[leaf], np.where(index == bits - 1, bits, index) if leaves == bits else index] = forest.value[
        leaf
    ]
    return {"column": column, "threshold": threshold, "mask": mask, "value": value}


def node_count(leaves: int, step: int = 1) -> int:
    """Return the size of a tree's tables in nodes, a multiple of `step`."""
    return -(-max(leaves - 1, 1) // step) * step


def _leaves(workload: Workload, config: Config) -> int:
    """Return the leaves of a kernel's trees, or of their pieces."""
    leaves, by_row = workload["leaves"], config["axis"] == "rows"
    return _PIECE if in_pieces(leaves, workload["depth"], bool(apart_of(workload)), by_row) else leaves


def more_leaves(workload: Workload, most: int) -> str | None:
    """Return the reason to refuse trees of more leaves than `most`; None if there are none."""
    if workload["leaves"] > most:
        return f"trees have up to {workload['leaves']} leaves; bitvector holds at most {most}"
    return None


class Bitvector(Strategy):
    """AND of node masks; for trees of at most 64 leaves, or 128 in pieces."""

    name = "bitvector"
    schedule = bitvector_cpu

    def refuse(self, workload: Workload) -> str | None:
        cut = workload["depth"] <= CUT_DEPTH and not apart_of(workload)
        return more_leaves(workload, MOST_CUT if cut else MAX_LEAVES)

    def nanoseconds(self, workload: Workload) -> float:
        return float(0.03 * workload["leaves"])

    def tables(self, forest: Forest, config: Config) -> dict[str, np.ndarray]:
        trees_inner = config["axis"] == "trees"
        leaves = int(np.diff(forest.offset).max() + 1) // 2
        if in_pieces(leaves, forest.depth, bool(forest.apart), not trees_inner):
            forest = remembered(forest.memo, "pieces", partial(cut, forest, _PIECE))
            leaves = _PIECE
        tiles = tile_trees(forest, int(config["tree_tile"]))
        rows = leaf_rows(table_leaves(leaves), forest.value_dtype, config)
        tables = tree_tables(forest, str(config["index_dtype"]), rows, leaves=leaves)
        return {name: spread(table, tiles, EMPTY[name], trees_inner) for name, table in tables.items()}

    def arguments(self, workload: Workload, config: Config) -> tuple[Argument, ...]:
        leaves, columns = _leaves(workload, config), workload["numeric"] + workload["categorical"]
        splits, word = (max(leaves - 1, 1),), f"int{word_bits(leaves)}"
        value = leaf_table(workload, config, table_leaves(leaves))
        ends = leaf_rows(table_leaves(leaves), workload["value_dtype"], config)
        index = str(config["index_dtype"])
        return (
            tree_table(workload, config, "column", index, splits, "index", below=columns),
            tree_table(workload, config, "threshold", workload["dtype"], splits),
            tree_table(workload, config, "mask", word, splits, "mask", leaves=ends),
            value,
        )

    def function(self, workload: Workload, config: Config) -> Any:
        """Return the tensor expressions as a function ready to be scheduled."""
        builder = StageBuilder(workload, config)
        tables = builder.placeholders(self.arguments(workload, config))
        column, threshold, mask, value = tables
        splits, word = max(_leaves(workload, config) - 1, 1), str(mask.dtype)

        both = te.comm_reducer(lambda a, b: a & b, lambda t: tirx.const(-1, t), name="both")
        node = te.reduce_axis((0, splits), "node")
        columns = builder.stage.columns

        def survivors(i: Any, o: Any, g: Any, t: Any, r: Any) -> Any:
            at = builder.at(o, g, t, node)
            index = column[at].astype("int32")
            # Where lanes are rows, all of them read the same column for a node.
            x = builder.column(i, index, r) if builder.trees_inner else columns[i, index, r]
            test = x <= threshold[at]
            return both(tirx.Select(test, tirx.const(-1, word), mask[at]), axis=node)

        bits = builder.per_tree(survivors, "bits")

        def leaf_value(i: Any, o: Any, g: Any, t: Any, r: Any, v: Any) -> Any:
            b = builder.read(bits, i, o, g, t, r)
            leaf = tirx.popcount(~b & (b - tirx.const(1, word))).astype("int32")
            return builder.leaf_value(value, o, g, t, leaf, v)

        return builder.function(tables, builder.scores(leaf_value))
