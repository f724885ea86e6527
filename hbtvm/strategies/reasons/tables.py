"""Tables of a forest's splits in the order of a depth-first walk, for Shapley values.

A kernel visits the splits of all trees in depth-first order, left before right. A visit opens a split: from
its parent's numbers it computes those of the split. Then it closes the splits whose subtrees end there. An
open split's numbers lie in a stack, at the split's level. `hbtvm.runtime.explaining.splits` says what the
tables hold of each split.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hbtvm.graph.reasons.paths import Paths
from hbtvm.graph.trees.ensemble import LEAF
from hbtvm.runtime.explaining.splits import (
    BEFORE,
    CLOSES,
    COLUMN,
    EARLIER,
    FLAGS,
    IS_RIGHT,
    LEFT,
    LEFT_LEAF,
    LEVEL,
    OWN,
    PLACE,
    RIGHT,
    RIGHT_LEAF,
    TERMS,
    WORDS,
)
from hbtvm.strategies.memo import remembered
from hbtvm.strategies.reasons.operand import ReasonsOperand


@dataclass(frozen=True)
class Splits:
    """The splits of a forest in depth-first order; S splits, T trees."""

    words: np.ndarray  # int32, shape (S, WORDS)
    numbers: np.ndarray  # `value_dtype`, shape (S, 4 + 2 * V)
    threshold: np.ndarray  # `dtype`, shape (S,)
    first: np.ndarray  # int64, shape (T + 1,): the first split of each tree


def splits_of(operand: ReasonsOperand) -> Splits:
    """Return an operand's splits; computed once."""
    return remembered(operand.memo, "splits", lambda: _splits(operand))


def _splits(operand: ReasonsOperand) -> Splits:
    forest, reasons, paths = operand.forest, operand.reasons, operand.reasons.paths
    order = _depth_first(forest.left, forest.right, forest.base, paths)
    trees = len(forest.offset) - 1
    tree = np.searchsorted(forest.offset, order, "right") - 1
    first = np.searchsorted(tree, np.arange(trees + 1))
    width = forest.value.shape[1]
    if not len(order):  # a kernel's tables are not empty: a split without an effect
        words = np.zeros((1, WORDS), np.int32)
        words[0, CLOSES], words[0, FLAGS] = 1, LEFT_LEAF | RIGHT_LEAF
        numbers = np.zeros((1, TERMS + 2 * width), forest.value_dtype)
        numbers[:, :TERMS] = 1
        return Splits(words, numbers, np.zeros(1, forest.dtype), np.array([0, 1]))

    level = np.zeros(len(forest.left), np.int64)
    for depth, nodes in enumerate(paths.levels):
        level[nodes] = depth
    left, right = forest.base[order] + forest.left[order], forest.base[order] + forest.right[order]
    is_right = np.zeros(len(level), bool)
    is_right[right] = True
    leaf = forest.left == LEAF
    before = paths.earlier[order]
    words = np.zeros((len(order), WORDS), np.int32)
    words[:, COLUMN] = forest.column[order]
    output = reasons.ensemble.tree_output[tree]
    words[:, PLACE] = output * (reasons.n_players + 1) + paths.player[order]
    words[:, EARLIER] = np.where(before >= 0, 2 * level[before] - 1 + is_right[before], 0)
    words[:, LEVEL] = level[order]
    words[:, CLOSES] = _closes(level[order], first)
    words[:, FLAGS] = LEFT_LEAF * leaf[left] + RIGHT_LEAF * leaf[right] + IS_RIGHT * is_right[order]
    numbers = np.zeros((len(order), TERMS + 2 * width))
    numbers[:, OWN] = paths.weight[order]
    numbers[:, BEFORE] = np.where(before >= 0, paths.weight[before], 1.0)
    numbers[:, LEFT], numbers[:, RIGHT] = paths.weight[left], paths.weight[right]
    terms = np.where(leaf[:, None], reasons.ensemble.value * paths.share[:, None], 0.0)
    numbers[:, TERMS : TERMS + width], numbers[:, TERMS + width :] = terms[left], terms[right]
    return Splits(words, numbers.astype(forest.value_dtype), forest.threshold[order], first)


def _depth_first(left: np.ndarray, right: np.ndarray, base: np.ndarray, paths: Paths) -> np.ndarray:
    """Return all splits, by tree, in depth-first order."""
    inner = np.ones(len(left), np.int64)
    inner[left == LEAF] = 0  # then splits of the subtree
    for nodes in reversed(paths.levels[1:]):
        np.add.at(inner, paths.parent[nodes], inner[nodes])
    place = np.zeros(len(left), np.int64)
    roots = paths.levels[0]
    place[roots] = np.cumsum(inner[roots]) - inner[roots]
    for nodes in paths.levels:
        split = nodes[left[nodes] != LEAF]
        first, second = base[split] + left[split], base[split] + right[split]
        place[first] = place[split] + 1
        place[second] = place[first] + inner[first]
    splits = np.flatnonzero(left != LEAF)
    order = np.empty(len(splits), np.int64)
    order[place[splits]] = splits
    return order


def _closes(level: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Return the number of splits that each visit closes."""
    # The next split of the tree is a child of the last split that stays open.
    following = np.append(level[1:], 0)
    last = first[1:] - 1
    following[last[last >= 0]] = 0
    closes: np.ndarray = level + 1 - following
    return closes
