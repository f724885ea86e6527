"""Trees of any shapes as slots that walks on CUDA load: one or two words of 64 bits for each node.

A tree's slots are in the order of its levels, siblings adjacent: the cost of a warp's load is the number of
cache lines that its rows touch, and near the root all nodes of a level lie in few lines. A split's flags say
whether each child is a leaf::

    float32   threshold | link << 32;  link = column | leaves << bits | offset << bits + 2
    float64   threshold; link

where `offset` is the distance to the left child in slots, and the bits of `leaves` stand for the left and
the right child. If 32 bits are too few for a link, a second word holds the offset. A leaf's slot holds the
leaf's values, or their place in a table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import tirx

from hbtvm.schedules.workload import Workload
from hbtvm.strategies.cuda import packed_nodes
from hbtvm.strategies.trees.forest import Forest

_LEAVES = 2  # bits of a link that say which children are leaves
FEWEST = 4  # slots of a single-leaf tree: a root whose two children are that leaf, and an unused slot


@dataclass(frozen=True)
class SlotFormat:
    """The format of a forest's slots."""

    dtype: str  # of columns and thresholds
    bits: int  # bits of a column
    linked: bool  # whether the link contains the offset
    inline: bool  # whether a leaf's slot contains its values

    @classmethod
    def of(cls, workload: Workload) -> SlotFormat:
        """Return the format of a workload's slots."""
        dtype, columns = str(workload["dtype"]), int(workload["numeric"]) + int(workload["categorical"])
        wide = dtype == "float64"
        bits = 32 if wide else max(columns - 1, 1).bit_length()
        # The sign is not used.
        linked = wide or int(workload["nodes"]) + FEWEST < 1 << max(31 - bits - _LEAVES, 0)
        size = int(workload["width"]) * np.dtype(workload["value_dtype"]).itemsize
        return cls(dtype, bits, linked, size <= (16 if wide or not linked else 8))

    @property
    def words(self) -> int:
        """Words of a slot."""
        return 2 if self.dtype == "float64" or not self.linked else 1

    def split(
        self, threshold: np.ndarray, column: np.ndarray, leaves: np.ndarray, offset: np.ndarray
    ) -> np.ndarray:
        """Return slots of splits, int64, shape (n, words)."""
        link = column.astype(np.int64) | leaves.astype(np.int64) << self.bits
        if self.linked:
            link |= offset.astype(np.int64) << self.bits + _LEAVES
        words = packed_nodes.pack(threshold.astype(self.dtype), link)
        return words if self.linked else np.concatenate([words, offset.astype(np.int64)[:, None]], axis=1)

    def read(self, word: Callable[[int], Any]) -> tuple[Any, Any, Any, Callable[[Any], Any]]:
        """Return column, left child's offset and threshold of the slot whose n-th word is ``word(n)``.

        The fourth result is a function that returns whether a child is a leaf; its argument selects the left.
        """
        threshold, link = packed_nodes.unpack(word, self.dtype)
        kind = "int64" if self.dtype == "float64" else "int32"
        column = (link & tirx.const(2**self.bits - 1, kind)).astype("int32")
        offset = (link >> (self.bits + _LEAVES) if self.linked else word(1)).astype("int32")

        def is_leaf(left: Any) -> Any:
            bit = tirx.Select(left, tirx.const(1 << self.bits, kind), tirx.const(2 << self.bits, kind))
            return (link & bit) != tirx.const(0, kind)

        return column, offset, threshold, is_leaf


def value_of(word: Callable[[Any], Any], v: Any, value_dtype: str) -> Any:
    """Return the v-th of the values packed into words of 64 bits."""
    if value_dtype == "float64":
        return tirx.reinterpret(value_dtype, word(v))
    return tirx.reinterpret(value_dtype, (word(v // 2) >> (v % 2 * 32).astype("int64")).astype("int32"))


@dataclass(frozen=True)
class Slots:
    """A forest's slots."""

    node: np.ndarray  # int64, shape (slots, words)
    root: np.ndarray  # int64, shape (T,): the slot of each tree's root
    empty: int  # slot of the root of a tree whose values are 0
    # Values of leaves that do not fit their slots, shape (leaves, V); those of `empty` are last
    value: np.ndarray | None


def slots_of(forest: Forest, form: SlotFormat) -> Slots:
    """Return a forest's slots in a format."""
    place, start = _places(forest)
    empty = int(start[-1])
    node = np.zeros((empty + FEWEST, form.words), np.int64)
    leaf = forest.left < 0
    split, ends = np.flatnonzero(~leaf), np.flatnonzero(leaf)
    left, right = (forest.base[split] + side[split] for side in (forest.left, forest.right))
    leaves = leaf[left] | leaf[right].astype(np.int64) << 1
    node[place[split]] = form.split(
        forest.threshold[split], forest.column[split], leaves, place[left] - place[split]
    )
    # In single-leaf trees and the empty tree, both children of the root are that leaf.
    root = place[forest.offset[:-1]]
    alone = np.append(root[leaf[forest.offset[:-1]]], empty)
    zero = np.zeros(len(alone), np.int64)
    node[alone] = form.split(zero, zero, zero + 3, zero + 2)
    alone_nodes = np.append(forest.offset[:-1][leaf[forest.offset[:-1]]], len(leaf))
    # The slot of a leaf that is a root now holds a split, so its values go to the children.
    inner = ends[~np.isin(ends, alone_nodes)]
    at = np.concatenate([place[inner], alone + 2, alone + 3])
    whose = np.concatenate([inner, alone_nodes, alone_nodes])
    values = np.concatenate([forest.value, np.zeros((1, forest.value.shape[1]), forest.value.dtype)])
    if form.inline:
        _write(node, at, values[whose])
        return Slots(node, root, empty, None)
    kept = np.append(ends, len(leaf))
    node[at] = 0
    node[at, 0] = np.searchsorted(kept, whose)
    return Slots(node, root, empty, values[kept])


def _write(node: np.ndarray, at: np.ndarray, values: np.ndarray) -> None:
    """Write values of leaves into their slots."""
    slots = np.zeros((len(at), node.shape[1] * 8), np.uint8)
    raw = np.ascontiguousarray(values).view(np.uint8).reshape(len(at), -1)
    slots[:, : raw.shape[1]] = raw
    node[at] = slots.view(np.int64)


def _places(forest: Forest) -> tuple[np.ndarray, np.ndarray]:
    """Return the slot of each node, and the first slot of each tree and of the end."""
    trees = len(forest.offset) - 1
    tree = np.repeat(np.arange(trees), np.diff(forest.offset))
    place = np.zeros(len(forest.left), np.int64)
    used = np.full(trees, 2, np.int64)
    for level in forest.levels():
        split = level[forest.left[level] >= 0]  # in the order of trees
        tree_of = tree[split]
        first = np.searchsorted(tree_of, np.arange(trees))
        left = used[tree_of] + 2 * (np.arange(len(tree_of)) - first[tree_of])
        place[forest.base[split] + forest.left[split]] = left
        place[forest.base[split] + forest.right[split]] = left + 1
        used += 2 * np.bincount(tree_of, minlength=trees)
    start = np.concatenate([[0], np.cumsum(np.maximum(used, FEWEST))])
    return place + start[tree], start
