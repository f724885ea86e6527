"""Sequences, trees and grids, drawn by seed; and linearised in numpy, for peers that need it beforehand."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

CHAIN = 50
"""Steps of a sequence."""


def perfect(height: int = 7) -> np.ndarray:
    """Children of a perfect binary tree of 2**height leaves.

    Returns
    -------
    int64, shape (nodes, 2): numbers of children, -1 where there is none; children come before their parents,
    the root last. So with all functions here.
    """
    leaves = 2**height
    child = np.full((2 * leaves - 1, 2), -1)
    child[leaves:] = np.arange(2 * leaves - 2).reshape(-1, 2)
    return child


def grid(side: int = 10) -> np.ndarray:
    """Each cell of a square depends on the one above and the one to its left."""
    child = np.full((side * side, 2), -1)
    number = np.arange(side * side).reshape(side, side)
    child[number[1:].ravel(), 0] = number[:-1].ravel()
    child[number[:, 1:].ravel(), 1] = number[:, :-1].ravel()
    return child


def parse_tree(rng: np.random.Generator) -> np.ndarray:
    """A binary tree over a sentence like the Stanford Sentiment Treebank's: 2 to 52 words, 19 in the mean."""
    child: list[tuple[int, int]] = []

    def build(words: int) -> int:
        if words == 1:
            child.append((-1, -1))
        else:
            way = rng.random()
            left = 1 if way < 0.35 else words - 1 if way < 0.5 else int(rng.integers(1, words))
            first = build(left)
            child.append((first, build(words - left)))
        return len(child) - 1

    build(int(np.clip(round(rng.normal(19.2, 9.3)), 2, 52)))
    return np.array(child)


def chain(steps: int = CHAIN) -> np.ndarray:
    """A sequence: each step depends on the one before; one place for children."""
    return np.arange(-1, steps - 1)[:, None]


KINDS: dict[str, Callable[[np.random.Generator], np.ndarray]] = {
    "perfect": lambda rng: perfect(),
    "grid": lambda rng: grid(),
    "parse": parse_tree,
    "chain": lambda rng: chain(),
}
"""By name."""


@dataclass(frozen=True)
class Batch:
    """Structures of a call.

    Attributes
    ----------
    structures
        Children of each one's nodes, numbered within the structure.
    words
        int64, shape (nodes,): a word of each node, of all structures one behind the other; whether a model
        looks at it is the model's own matter.
    """

    structures: tuple[np.ndarray, ...]
    words: np.ndarray


def batch(kind: str, size: int, vocabulary: int, seed: int = 0) -> Batch:
    """Draw so many structures, and words for their nodes."""
    rng = np.random.default_rng(seed)
    drawn = tuple(KINDS[kind](rng) for _ in range(size))
    nodes = sum(map(len, drawn))
    return Batch(drawn, np.random.default_rng(seed + 1).integers(0, vocabulary, nodes))


class Linear:
    """Nodes of a batch numbered level by level, structures in order within a level.

    Attributes
    ----------
    nodes
        How many.
    child
        int64, shape (nodes, places), by the new numbers, -1 where there is none.
    leaf
        bool, shape (nodes,): whether a node has no children. They come first.
    levels
        Begin and end of each.
    words
        As the batch's, by the new numbers.
    order
        The old number of each node.
    roots
        New numbers of the structures' last nodes, in the structures' order.
    """

    def __init__(self, of: Batch) -> None:
        levels, moved, base, ends = [], [], 0, []
        for child in of.structures:
            level = np.zeros(len(child), np.int64)
            for node, own in enumerate(child):
                level[node] = 1 + max((level[one] for one in own if one >= 0), default=-1)
            levels.append(level)
            moved.append(np.where(child >= 0, child + base, -1))
            base += len(child)
            ends.append(base - 1)
        together, children = np.concatenate(levels), np.concatenate(moved)
        self.order = np.argsort(together, kind="stable")
        new = np.empty(base, np.int64)
        new[self.order] = np.arange(base)
        old = children[self.order]
        self.nodes = base
        self.child = np.where(old >= 0, new[old], -1)
        self.leaf = (self.child < 0).all(1)
        bounds = np.searchsorted(together[self.order], np.arange(together.max() + 2)).tolist()
        self.levels: list[tuple[int, int]] = list(itertools.pairwise(bounds))
        self.words = of.words[self.order]
        self.roots = new[ends]
