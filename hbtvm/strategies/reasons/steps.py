"""Tables of the steps of a walk that computes Shapley values on a GPU (`hbtvm.strategies.cuda.reasons`).

All rows take the same steps, in the order of a depth-first walk. Of two subtrees, the one with more leaves
comes first, so that the halves of sums that wait for a second subtree are few. A split with two leaves is a
step, `LEAVES`. Of another split, a step `DOWN` comes before its first subtree, `OVER` between two subtrees,
and after the last subtree `UP`, or, if the other child is a leaf, `UP_LEAF`. Of each step the tables hold

- `WORDS` whole numbers: its kind, flags and level; the level of the nearest earlier split of its player on
  the path, 0 if there is none; its column, or of `OVER` and `UP` the place of the halves; the place of its
  player's value;
- `NUMBERS` weights w (`hbtvm.graph.reasons.paths`): of its player's earlier branch, of the branch to the
  child that the step goes to or comes from (of `LEAVES` the left child), and of the other branch; and the
  threshold, if it is of the same type;
- for each output, the terms of its left and right leaf (`LEAVES`), or of its leaf (`UP_LEAF`) and 0.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from hbtvm.graph.reasons.anchor import TreeReasons
from hbtvm.graph.trees.ensemble import LEAF
from hbtvm.strategies.memo import remembered
from hbtvm.strategies.reasons.operand import ReasonsOperand

WORDS = 4
CODE, EARLIER, WHERE, PLACE = range(WORDS)
NUMBERS = 4
BEFORE, THIS, OTHER, THRESHOLD = range(NUMBERS)

LEAVES, DOWN, OVER, UP, UP_LEAF = range(5)  # the kinds of steps
KINDS, RIGHT, AGAIN, LEVELS = 8, 8, 16, 32
"""A code is ``kind + RIGHT * right + AGAIN * again + LEVELS * level``, and a kind less than `KINDS`.

`right`: whether a step ``DOWN`` goes to the right.
`again`: whether the player has an earlier split on the path.
"""


@dataclass(frozen=True)
class Steps:
    """The steps of a forest, by group of outputs, then by tree, those with fewer points first; N steps."""

    words: np.ndarray  # int32, shape (N, WORDS)
    numbers: np.ndarray  # `value_dtype`, shape (N, NUMBERS)
    terms: np.ndarray  # `value_dtype`, shape (N, V, 2)
    threshold: np.ndarray  # `dtype`, shape (N,)
    # Of each group: int64, the first step of each of its trees, and their end; and the trees' points
    first: tuple[np.ndarray, ...]
    points: tuple[np.ndarray, ...]


def steps_of(operand: ReasonsOperand) -> Steps:
    """Return an operand's steps; computed once."""
    return remembered(operand.memo, "steps", lambda: _steps(operand))


def _steps(operand: ReasonsOperand) -> Steps:
    forest, reasons, paths = operand.forest, operand.reasons, operand.reasons.paths
    width = forest.value.shape[1]
    split = np.flatnonzero(forest.left != LEAF)
    left, right = (np.zeros(len(forest.left), np.int64) for _ in range(2))
    left[split], right[split] = (
        forest.base[split] + forest.left[split],
        forest.base[split] + forest.right[split],
    )
    inner = forest.left != LEAF
    leaves = (~inner).astype(np.int64)
    for nodes in reversed(paths.levels[1:]):
        np.add.at(leaves, paths.parent[nodes], leaves[nodes])
    turned = inner & (leaves[right] > leaves[left])
    # A leaf is never the first of two children that differ.
    first, second = np.where(turned, right, left), np.where(turned, left, right)
    one, both = inner & inner[first], inner & inner[second]  # at least one subtree, and two

    count = np.where(inner, 1 + one + both, 0)  # then steps of a subtree
    for nodes in reversed(paths.levels[1:]):
        np.add.at(count, paths.parent[nodes], count[nodes])
    roots = paths.levels[0]
    group = reasons.ensemble.tree_output // width
    points = _points(reasons)
    order = np.lexsort((points, group))
    ends = np.cumsum(count[roots[order]])
    place, level, half = (np.zeros(len(count), np.int64) for _ in range(3))
    place[roots[order]] = ends - count[roots[order]]
    for depth, nodes in enumerate(paths.levels):
        level[nodes] = depth
        here = nodes[inner[nodes]]
        place[first[here]] = place[here] + 1
        place[second[here]] = place[here] + 1 + count[first[here]] + both[here]
        half[first[here]] = half[here]
        half[second[here]] = half[here] + both[here]

    total = int(ends[-1]) if len(ends) else 0
    size = max(total, 1)  # a kernel's tables are not empty
    words, numbers = np.zeros((size, WORDS), np.int32), np.zeros((size, NUMBERS))
    terms, threshold = np.zeros((size, width, 2)), np.zeros(size, forest.dtype)
    values = reasons.ensemble.value * paths.share[:, None]

    def write(kind: int, chosen: np.ndarray, at: np.ndarray, second_child: bool = False) -> None:
        nodes = np.flatnonzero(chosen)
        at, before = at[nodes], paths.earlier[nodes]
        this, other = (second, first) if second_child else (first, second)
        if kind == LEAVES:
            this, other = left, right
        this, other = this[nodes], other[nodes]
        again = before >= 0
        words[at, CODE] = kind + AGAIN * again + LEVELS * level[nodes]
        if kind == DOWN:
            words[at, CODE] += RIGHT * turned[nodes]
        words[at, EARLIER] = np.where(again, level[before] - 1, 0)
        words[at, WHERE] = half[nodes] if kind in (OVER, UP) else forest.column[nodes]
        words[at, PLACE] = paths.player[nodes]
        numbers[at, BEFORE] = np.where(again, paths.weight[before], 1.0)
        numbers[at, THIS], numbers[at, OTHER] = paths.weight[this], paths.weight[other]
        threshold[at] = numbers[at, THRESHOLD] = forest.threshold[nodes]
        if kind == LEAVES:
            terms[at, :, 0], terms[at, :, 1] = values[this], values[other]
        if kind == UP_LEAF:
            terms[at, :, 0] = values[other]

    write(LEAVES, inner & ~one, place)
    write(DOWN, one, place)
    write(OVER, both, place[second] - 1)
    write(UP, both, place + count - 1, second_child=True)
    write(UP_LEAF, one & ~both, place + count - 1)

    starts = np.append(ends - count[roots[order]], total)
    bounds = np.searchsorted(group[order], np.arange(int(operand.forest.group_trees.shape[0]) + 1))
    of_groups = tuple(starts[a : b + 1] for a, b in itertools.pairwise(bounds))
    of_trees = tuple(points[order[a:b]] for a, b in itertools.pairwise(bounds))
    dtype = forest.value_dtype
    return Steps(words, numbers.astype(dtype), terms.astype(dtype), threshold, of_groups, of_trees)


def _points(reasons: TreeReasons) -> np.ndarray:
    """Return the points of the quadrature that each tree's paths need: int64, shape (T,)."""
    paths, ensemble = reasons.paths, reasons.ensemble
    players = np.zeros(ensemble.n_nodes, np.int64)  # above a node
    for nodes in paths.levels[1:]:
        above = paths.parent[nodes]
        players[nodes] = players[above] + (paths.earlier[above] < 0)
    most = np.maximum.reduceat(players, ensemble.offset[:-1])
    points: np.ndarray = np.maximum((most + 1) // 2, 1)
    return points
