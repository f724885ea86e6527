"""Trees packed node by node, so that walks touch few cache lines.

All nodes of a forest lie in one array of slots, tree by tree, so trees need no padding to the largest.
Siblings are neighbours. Pairs of siblings are in depth-first order, the child that more training rows reached
first (PACSET's weighted order), so the pairs on the likely path follow each other in the same lines.

Pairs of leaves with equal values are stored once per tree, behind its other pairs: trees of unlimited depth
have thousands of leaves, and few distinct values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import tirx

from hbtvm.strategies.base import leaf_ranges
from hbtvm.strategies.trees.forest import Forest

LINE = 64  # bytes of a cache line
_SAMPLE = 4096  # leaves in which to look for equal values
_SHARED = 8  # least uses of a pair of leaves, on average, for which it is worth to be away from its parents
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
        # A packed tree takes up to four slots for each node, plus a line.
        most, least = 4 * nodes + LINE, int(columns).bit_length()
        # Loads take bytes from words.
        fits = [bits for bits in (8, least) if least <= bits and most < 1 << max(LINK_BITS - bits, 0)]
        self.linked = dtype == "float64" or bool(fits)
        self.bits = 32 if dtype == "float64" else fits[0] if fits else least
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

    def read(self, element: Any, dtype: str) -> tuple[Any, Any, Any]:
        """Return column and left child's offset, of an integer type, and threshold.

        `element`: from n to the slot's n-th element.
        """
        if not self.linked:
            return self._integer(element(1), dtype), self._integer(element(2), dtype), element(0)
        word = self._word if dtype == "int32" else "int64"
        link = self._integer(element(1), word)
        column = link & tirx.const(2**self.bits - 1, word)
        return column.astype(dtype), (link >> self.bits).astype(dtype), element(0)

    def read_index(self, element: Any) -> Any:
        """Return the integer that `write_index` wrote."""
        return self._integer(element(0), "int32")

    def _integer(self, element: Any, dtype: str) -> Any:
        """Return an element's word, which is not negative, as an integer of at least its bits."""
        unsigned = self._word if self._word == dtype else f"u{self._word}"
        return tirx.reinterpret(unsigned, element).astype(dtype)


@dataclass(frozen=True)
class Packing:
    """The slots of a forest's nodes."""

    node: np.ndarray  # int64, shape (N,): the slot of each node; equal leaves may share one
    root: np.ndarray  # int64, shape (T,): the slot of each tree's root
    size: int  # number of slots
    # `value`, `leaf`: the distinct leaf values, shape (L, V), and the row of each node's; 0 at splits
    value: np.ndarray
    leaf: np.ndarray


def pack(forest: Forest, line: int) -> Packing:
    """Return the slots of a forest's nodes; trees begin with a line of `line` slots. Parents come first."""
    trees, split, levels = len(forest.offset) - 1, forest.left >= 0, forest.levels()
    left = np.where(split, forest.base + forest.left, 0)
    right = np.where(split, forest.base + forest.right, 0)
    use = leaf_ranges(forest)[1] if forest.cover is None else forest.cover
    value, leaf = leaf_values(forest)
    tree = np.repeat(np.arange(trees), np.diff(forest.offset))

    # Parents of two leaves, if many of them share a pair.
    above = np.flatnonzero(split & ~split[left] & ~split[right])
    key = (tree[above] * len(value) + leaf[left[above]]) * len(value) + leaf[right[above]]
    pairs, pair = np.unique(key, return_inverse=True)
    if _SHARED * len(pairs) > len(above):
        above, pairs, pair = above[:0], pairs[:0], pair[:0]
    pairs_of_tree = pairs // len(value) ** 2
    rank = np.arange(len(pairs)) - np.searchsorted(pairs_of_tree, pairs_of_tree)
    owns = split.copy()
    owns[above] = False

    # Pairs below each node; those of leaves are at the tree's end.
    below = owns.astype(np.int64)
    for level in reversed(levels):
        parent = level[owns[level]]
        below[parent] += below[left[parent]] + below[right[parent]]
    roots, step = forest.offset[:-1], line // 2
    size = 1 + below[roots] + np.bincount(pairs_of_tree, minlength=trees)
    first = np.concatenate([[0], np.cumsum(-(-size // step) * step)])

    node, start = np.zeros((2, len(split)), np.int64)
    node[roots], start[roots] = 2 * first[:-1], first[:-1] + 1
    for level in levels:
        parent = level[owns[level]]
        here, one, other = start[parent], left[parent], right[parent]
        node[one], node[other] = 2 * here, 2 * here + 1
        later = use[one] < use[other]
        start[one] = here + 1 + np.where(later, below[other], 0)
        start[other] = here + 1 + np.where(later, 0, below[one])
    shared = 2 * (first[tree[above]] + 1 + below[roots[tree[above]]] + rank[pair])
    node[left[above]], node[right[above]] = shared, shared + 1
    return Packing(node, 2 * first[:-1], int(2 * first[-1]), value, leaf)


def leaf_values(forest: Forest) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct leaf values, shape (L, V), and the row of each node's, int64; 0 at splits.

    Values that differ in any bit are distinct. If there are many, each leaf has a row of its own.
    """
    leaf = np.flatnonzero(forest.left < 0)
    values = np.ascontiguousarray(forest.value[leaf])
    bits = values.view(f"int{8 * values.itemsize}")
    index = np.zeros(len(forest.left), np.int64)
    sample = bits[:: max(1, len(bits) // _SAMPLE)]
    if 2 * len(np.unique(sample, axis=0)) > len(sample):
        index[leaf] = np.arange(len(leaf))
        return values, index
    code = np.zeros(len(leaf), np.int64)
    for column in bits.T:
        _, of_column = np.unique(column, return_inverse=True)
        _, code = np.unique(code * len(leaf) + of_column, return_inverse=True)
    _, first, index[leaf] = np.unique(code, return_index=True, return_inverse=True)
    return values[first], index
