"""Layout of the tables of a kernel of Shapley values (`hbtvm.strategies.reasons.tables`), and its splits.

Splits are in the order of a depth-first walk, left before right. Of each, the tables hold

- `WORDS` whole numbers: its column; the place of its player's value among a row's results; the *branch* of
  the nearest earlier split of its player; its level; the splits that its visit closes; its flags;
- ``4 + 2 * V`` numbers: the weights w (`hbtvm.graph.reasons.paths`) of the branch to it, of its player's
  earlier branch, and of its left and right branch; then the terms of its left and its right child, if they
  are leaves, else zeros.

Branch 0 stands for none; the left and right branch of a split at level d are 1 + 2 * d and 2 + 2 * d.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hbtvm.runtime.package.kernel import KernelEntry

WORDS = 6
COLUMN, PLACE, EARLIER, LEVEL, CLOSES, FLAGS = range(WORDS)  # a split's whole numbers
LEFT_LEAF, RIGHT_LEAF, IS_RIGHT = 1, 2, 4  # flags: which children are leaves, and whether it is a right child
OWN, BEFORE, LEFT, RIGHT, TERMS = range(5)  # a split's numbers, its leaves' terms last


def tables_of(kernel: KernelEntry) -> dict[str, np.ndarray]:
    """Return a kernel's tables by name."""
    names = [argument.name for argument in kernel.signature.tables]
    return dict(zip(names, kernel.tables, strict=True))


@dataclass(frozen=True)
class LeafPaths:
    """The paths to leaves with the same number of players; L leaves, n players, V values of a leaf."""

    branch: np.ndarray  # int64, shape (L, n): each player's last branch, twice its split, plus 1 for right
    weight: np.ndarray  # float64, shape (L, n): w of these branches
    player: np.ndarray  # int64, shape (L, n)
    term: np.ndarray  # float64, shape (L, V): value times share of cover
    output: np.ndarray  # int64, shape (L,): the first of the V outputs


def leaf_paths(words: np.ndarray, numbers: np.ndarray, players: int) -> list[LeafPaths]:
    """Return the paths of all leaves with at least two players, by their number.

    `words`, `numbers`: the tables, shapes (S, `WORDS`) and (S, 4 + 2 * V).
    `players`: results of a row for each output, the base value among them.
    """
    above = _parents(words[:, LEVEL])
    width = (numbers.shape[1] - TERMS) // 2
    split, side = np.nonzero(words[:, FLAGS, None] & np.array([LEFT_LEAF, RIGHT_LEAF]))
    term = numbers[:, TERMS:].reshape(-1, 2, width)[split, side].astype(np.float64)
    output = words[split, PLACE] // players
    depth = int(words[:, LEVEL].max(initial=0)) + 1
    branch = np.full((len(split), depth), -1, np.int64)  # by level
    kept = np.zeros((len(split), depth), bool)
    here, leaf = 2 * split + side, np.arange(len(split))
    for level in reversed(range(depth)):
        at = words[here >> 1, LEVEL] == level
        branch[leaf[at], level], kept[leaf[at], level] = here[at], True
        # Roots stay where they are.
        parent = above[here >> 1]
        right = (words[here >> 1, FLAGS] & IS_RIGHT) > 0
        here = np.where(at & (parent >= 0), 2 * parent + right, here)
    for level in range(depth):
        known = np.flatnonzero(branch[:, level] >= 0)
        earlier = words[branch[known, level] >> 1, EARLIER]
        again = earlier > 0
        kept[known[again], (earlier[again] - 1) >> 1] = False
    count = kept.sum(axis=1)
    groups = []
    for n in np.unique(count[count > 1]).tolist():
        of = count == n
        last = branch[of][kept[of]].reshape(-1, n)
        weight = numbers[last >> 1, LEFT + (last & 1)].astype(np.float64)
        player = words[last >> 1, PLACE] % players
        groups.append(LeafPaths(last, weight, player.astype(np.int64), term[of], output[of].astype(np.int64)))
    return groups


def _parents(level: np.ndarray) -> np.ndarray:
    """Return the split above each split; -1 at roots."""
    index, above = np.arange(len(level)), np.full(len(level), -1)
    for depth in range(1, int(level.max(initial=0)) + 1):
        last = np.maximum.accumulate(np.where(level == depth - 1, index, -1))
        above[level == depth] = last[level == depth]
    return above


def branches_taken(tables: Mapping[str, np.ndarray], facts: Mapping[str, Any], X: np.ndarray) -> np.ndarray:
    """Return whether rows take a branch, and their player's earlier ones: bool, shape (2 * S, n).

    `facts`: of the forest, see `hbtvm.runtime.package.facts.anchor_facts`.
    `X`: rows as the kernel reads them, shape (n, features).
    """
    words, threshold = tables["split"], tables["threshold"]
    columns = _columns(tables, facts, X)
    goes = columns[words[:, COLUMN]] <= threshold[:, None]
    taken: np.ndarray = np.stack([goes, ~goes], 1)
    above, level, earlier = _parents(words[:, LEVEL]), words[:, LEVEL], words[:, EARLIER]
    # The split of the earlier branch: as many parents up as levels lie between.
    target = (earlier - 1) >> 1
    at, waiting = np.arange(len(words)), earlier > 0
    while True:
        moving = waiting & (level[at] > target)
        if not moving.any():
            break
        at = np.where(moving, above[at], at)
    for depth in range(int(level.max(initial=0)) + 1):
        of = np.flatnonzero(waiting & (level == depth))
        taken[of] &= taken[at[of], (earlier[of] - 1) & 1][:, None]
    return taken.reshape(2 * len(words), -1)


def _columns(tables: Mapping[str, np.ndarray], facts: Mapping[str, Any], X: np.ndarray) -> np.ndarray:
    """Return the columns that splits compare, shape (columns, n); see `hbtvm.strategies.columns`."""
    feature = tables.get("column_feature")
    numbers: np.ndarray = X.T if feature is None else X.T[feature]
    fill, zero = tables.get("column_fill"), tables.get("column_zero")
    if fill is not None:
        known = ~np.isnan(numbers) if zero is None else np.abs(numbers) > zero[:, None]
        numbers = np.where(known, numbers, fill[:, None])
    bits = tables.get("category_bits")
    if bits is None:
        return numbers
    codes, size = X.T[tables["category_feature"]], facts["category_size"]
    above = codes > -1 if facts["negative_fraction_is_zero"] else codes >= 0
    outside = np.where(np.isnan(codes), size + 1, size)
    with np.errstate(invalid="ignore"):
        bit = np.where(above & (codes < size), codes, outside).astype(np.int64)
    bit = np.minimum(bit, 32 * bits.shape[1] - 1)
    right = (np.take_along_axis(bits, bit >> 5, 1) >> (bit & 31)) & 1
    columns: np.ndarray = np.concatenate([numbers, right.astype(numbers.dtype)])
    return columns
