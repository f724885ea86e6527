"""Structures to check and time recursive models on: the user's, or random structures."""

from __future__ import annotations

import math

import numpy as np

from hbtvm.errors import InputError, InputTypeError
from hbtvm.recursive.cell import Cell
from hbtvm.recursive.checking import check
from hbtvm.runtime.recursive.structures import Structures
from hbtvm.words.quantities import count as counted

_WORDS = (2, 52)
"""Words of random trees' sentences, as in the Stanford Sentiment Treebank; 19 in the mean."""

_STEPS = 32  # nodes of a chain


def sample(cell: Cell, count: int, seed: int = 0) -> Structures:
    """Draw structures: chains for cells of one child, else random binary trees.

    `count`: number of structures.
    Returns structures whose leaves have random numbers; inner nodes have them if numbers are not optional.
    """
    rng = np.random.default_rng(seed)
    places = 2 if cell.children is None else cell.children
    starts, first, child, leaf = [0], [0], [], []
    for _ in range(count):
        base = starts[-1]
        nodes = _chain() if places == 1 else _tree(rng)
        for children in nodes:
            child += [base + node for node in children]
            first.append(len(child))
            leaf.append(not children)
        starts.append(base + len(nodes))
    inputs: dict[str, np.ndarray] = {}
    leaves = np.array(leaf)
    for name, input_ in cell.inputs.items():
        if input_.kind == "vector":
            inputs[name] = rng.standard_normal((len(leaves), input_.size)).astype(np.float32)
            continue
        numbers = rng.integers(0, input_.size, len(leaves))
        inputs[name] = np.where(leaves | (not input_.optional) | (places == 1), numbers, -1).astype(np.int32)
    return Structures(
        np.array(starts, np.int64), np.array(first, np.int32), np.array(child, np.int32), inputs
    )


def check_sample(cell: Cell, structures: Structures) -> None:
    """Check a user's structures to tune on.

    Raises `InputError` if they don't fit the cell, or have no node.
    """
    if not isinstance(structures, Structures):
        raise InputTypeError(
            "sample should be structures, as hbtvm.recursive makes them of trees, graphs and sequences; "
            f"got {type(structures).__name__}"
        )
    check(structures, cell)
    if not len(structures.first) - 1:
        raise InputError("sample has no node; expected at least one structure with a node")


def taken(structures: Structures, count: int, seed: int = 0) -> Structures:
    """Draw `count` structures at random; more than there are repeat all of them.

    `structures`: checked structures (see `check_sample`); those without nodes are left out.
    """
    sizes = np.diff(structures.starts)
    nonempty = np.flatnonzero(sizes)
    rounds = -(-count // len(nonempty))
    rng = np.random.default_rng(seed)
    chosen = np.concatenate([rng.permutation(nonempty) for _ in range(rounds)])[:count]
    return _these(structures, chosen)


def _these(structures: Structures, chosen: np.ndarray) -> Structures:
    """Return the structures with these indices, in order."""
    sizes = np.diff(structures.starts)[chosen]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    # The old index of each node in the new order, and the shift of each child's structure.
    nodes = np.arange(starts[-1]) + np.repeat(structures.starts[chosen] - starts[:-1], sizes)
    counts = np.diff(structures.first)[nodes]
    first = np.concatenate([[0], np.cumsum(counts)])
    places = np.arange(first[-1]) + np.repeat(structures.first[nodes] - first[:-1], counts)
    moved = np.repeat(np.repeat(starts[:-1] - structures.starts[chosen], sizes), counts)
    child = structures.child[places]
    return Structures(
        starts.astype(np.int64),
        first.astype(np.int32),
        np.where(child < 0, -1, child + moved).astype(np.int32),
        {name: np.asarray(array)[nodes] for name, array in structures.inputs.items()},
    )


def sample_words(cell: Cell, structures: Structures | None) -> str:
    """Describe the structures of `sample`, or a user's structures."""
    if structures is not None:
        number = len(structures)
        mean = (len(structures.first) - 1) / number
        return f"your {counted(number, 'structure')} of {mean:,.0f} nodes in the mean"
    if cell.children == 1:
        return f"chains of {_STEPS} nodes, with inputs drawn at random"
    few, many = _WORDS
    return (
        f"random binary trees of {few} to {many} leaves, as sentences' parse trees have, with inputs drawn "
        "at random"
    )


def shape_of(structures: Structures) -> tuple[int, int]:
    """Return the mean nodes of a structure, rounded up to a power of two, and the number of levels."""
    levels = np.zeros(len(structures.first) - 1, np.int64)
    # Each round handles all nodes; there are as many rounds as levels.
    while True:
        deeper = levels.copy()
        parents = np.repeat(np.arange(len(levels)), np.diff(structures.first))
        exists = structures.child >= 0
        np.maximum.at(deeper, parents[exists], levels[structures.child[exists]] + 1)
        if (deeper == levels).all() or deeper.max() >= len(levels):
            break
        levels = deeper
    nodes = max(1.0, len(levels) / max(1, len(structures)))
    return 1 << math.ceil(math.log2(nodes)), int(levels.max(initial=0)) + 1


def _chain() -> list[list[int]]:
    return [[node - 1] if node else [] for node in range(_STEPS)]


def _tree(rng: np.random.Generator) -> list[list[int]]:
    words = int(np.clip(round(rng.normal(19.2, 9.3)), *_WORDS))
    nodes: list[list[int]] = []

    def build(count: int) -> int:
        children: list[int] = []
        if count > 1:
            drawn = rng.random()
            left = 1 if drawn < 0.35 else count - 1 if drawn < 0.5 else int(rng.integers(1, count))
            children = [build(left), build(count - left)]
        nodes.append(children)
        return len(nodes) - 1

    build(words)
    return nodes
