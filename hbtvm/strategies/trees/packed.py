"""Trees packed node by node, so that walks touch few cache lines.

All nodes of a forest lie in one array of slots, tree by tree, so trees need no padding to the largest.
Siblings are neighbours, and pairs of siblings are packed into cache lines: a line begins with the pair below
some node, then takes the children of its node with the largest subtree, until it is full; the subtrees below
begin new lines. A walk then finds two or three levels in each line that it fetches (the idea of van Emde Boas
layouts), which matters once trees outgrow the caches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import tirx

from hbtvm.strategies.base import leaf_ranges, rank_in_tree
from hbtvm.strategies.trees.forest import Forest

LINE = 64  # bytes of a cache line
LINK_BITS = 31  # usable bits of a 32-bit link; the sign bit is not used


class Slots:
    """Layout of slots. A slot is a few elements of the columns' type, and holds a node.

    A link is the column to compare and the offset, in slots, of the left child. float32: threshold,
    link; or threshold, column, offset if the link exceeds 32 bits. float64: threshold, link of 64 bits.

    `dtype`: of the columns and thresholds.
    `nodes`: nodes of the largest tree.
    `columns`: number of columns, without the column that is always -inf.
    `linked`, `width`: whether column and offset share a word; elements of a slot.
    `line`: slots that fill a cache line.
    """

    def __init__(self, dtype: str, nodes: int, columns: int) -> None:
        self.dtype = dtype
        self.bits = 32 if dtype == "float64" else int(columns).bit_length()
        # A packed tree takes up to four slots for each node, plus a line.
        self.linked = dtype == "float64" or 4 * nodes + LINE < 1 << max(LINK_BITS - self.bits, 0)
        self.width = 2 if self.linked else 3
        self.line = LINE // (2 * np.dtype(dtype).itemsize)
        self._word = "int64" if dtype == "float64" else "int32"

    def table(self, count: int) -> np.ndarray:
        """Return a table of `count` slots, all zero."""
        return np.zeros((count, self.width), self.dtype)

    def write(self, table: np.ndarray, at: np.ndarray, column: np.ndarray, offset: np.ndarray) -> None:
        """Write the links of the slots `at`: columns, and offsets of left children."""
        words = table.view(self._word)
        if self.linked:
            words[at, 1] = offset.astype(self._word) << self.bits | column
        else:
            words[at, 1], words[at, 2] = column, offset

    def write_index(self, table: np.ndarray, at: np.ndarray, index: np.ndarray) -> None:
        """Write integers in place of the thresholds of the slots `at`; read as floats, they are finite."""
        table.view(self._word)[at, 0] = index

    def read(self, element: Any) -> tuple[Any, Any, Any]:
        """Return column, left child's offset and threshold; `element` returns the slot's n-th element."""
        if not self.linked:
            return self._integer(element(1)), self._integer(element(2)), element(0)
        link = self._integer(element(1))
        column = link & tirx.const(2**self.bits - 1, self._word)
        return column.astype("int32"), (link >> self.bits).astype("int32"), element(0)

    def read_index(self, element: Any) -> Any:
        """Return the integer that `write_index` wrote."""
        return self._integer(element(0)).astype("int32")

    def _integer(self, element: Any) -> Any:
        return tirx.reinterpret(self._word, element)


@dataclass(frozen=True)
class Packing:
    """The slots of a forest's nodes."""

    node: np.ndarray  # int64, shape (N,): the slot of each node
    root: np.ndarray  # int64, shape (T,): the slot of each tree's root
    size: int  # number of slots


def pack(forest: Forest, line: int) -> Packing:
    """Return the slots of a forest's nodes in lines of `line` slots, an even number; parents first."""
    pairs, trees = line // 2, len(forest.offset) - 1
    left, right = forest.base + forest.left, forest.base + forest.right
    splits = leaf_ranges(forest)[1] - 1  # in a node's subtree
    block, pair, side = np.zeros((3, len(splits)), np.int64)

    def below(nodes: np.ndarray) -> np.ndarray:
        return np.where(nodes >= 0, splits[nodes], 0)

    # Make blocks of up to a line, one generation after the other; a tree's first begins with its root.
    tops, tree = forest.offset[:-1].astype(np.int64), np.arange(trees)
    block[tops] = tree
    block_tree, block_pairs, count = [], [], 0
    while len(tops):
        used = np.full(len(tops), 1 if count == 0 else 0)
        number = count + np.arange(len(tops))
        open_nodes = np.full((len(tops), pairs + 1), -1, np.int64)
        open_nodes[:, 0] = tops
        for step in range(pairs - int(used[0])):
            sizes = below(open_nodes)
            best = np.argmax(sizes, axis=1)
            active = np.flatnonzero(sizes[np.arange(len(tops)), best] > 0)
            parent = open_nodes[active, best[active]]
            for child in (left[parent], right[parent]):
                block[child], pair[child] = number[active], used[active]
            open_nodes[active, best[active]] = left[parent]
            open_nodes[active, step + 1] = right[parent]
            used[active] += 1
        block_tree.append(tree)
        block_pairs.append(used)
        count += len(tops)
        rest = below(open_nodes) > 0
        tops, tree = open_nodes[rest], np.repeat(tree, rest.sum(axis=1))

    start, size = _place_blocks(np.concatenate(block_tree), np.concatenate(block_pairs), trees, pairs)
    side[right[forest.left >= 0]] = 1
    first = np.concatenate([[0], np.cumsum(size)])
    tree_of_node = np.repeat(np.arange(trees), np.diff(forest.offset))
    node = 2 * (first[tree_of_node] + start[block] + pair) + side
    return Packing(node, 2 * first[:-1], int(2 * first[-1]))


def _place_blocks(
    tree: np.ndarray, used: np.ndarray, trees: int, pairs: int
) -> tuple[np.ndarray, np.ndarray]:
    """Place blocks within their trees: the largest first, single pairs in the gaps after others.

    Returns start, size; int64: the start of each block and the size of each tree, in pairs; trees take whole
    lines.
    """

    def members(number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the blocks of `number` pairs by tree, their ranks within the tree, and each tree's count."""
        blocks = np.flatnonzero(used == number)
        blocks = blocks[np.argsort(tree[blocks], kind="stable")]
        return blocks, rank_in_tree(tree[blocks], trees), np.bincount(tree[blocks], minlength=trees)

    start = np.zeros(len(tree), np.int64)
    end = np.zeros(trees, np.int64)
    gaps = np.zeros((trees, 2), np.int64)  # start and number of each tree's gaps of one pair
    for number in range(pairs, 0, -1):
        blocks, rank, count = members(number)
        at = end[tree[blocks]]
        if number == 1:
            in_gap = rank < gaps[tree[blocks], 1]
            later = rank - gaps[tree[blocks], 1]
            start[blocks] = np.where(in_gap, gaps[tree[blocks], 0] + pairs * rank + pairs - 1, at + later)
            end += np.maximum(count - gaps[:, 1], 0)
        elif 2 * number <= pairs:
            start[blocks] = at + number * rank
            end += number * count
        else:
            start[blocks] = at + pairs * rank
            if number == pairs - 1:
                gaps = np.stack([end, count], axis=1)
            end = end + pairs * count
    return start, -(-end // pairs) * pairs
