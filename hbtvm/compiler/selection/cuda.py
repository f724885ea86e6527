"""Which strategy to take on a GPU where nothing was measured.

Nothing here was measured either: it is reasoned from what a multiprocessor does for a warp of 32 rows.
Its unit for loads and stores handles one cache line of 128 bytes at a time, so what counts is how many
different lines the rows of a warp ask for:

- A column lies by rows in shared memory: one line for each node that is tested.
- bitvector tests every node of a tree. All rows ask for the same one, and three loads bring four nodes.
- Walks test one node for each level. Rows part on their way down: at level l they ask for up to
  2 ** l nodes, as far as the tree has so many, and for at most 32 lines.
- Lines that come from the second-level cache or from memory take longer. Blocks go through the trees in
  about the same order, so it is a tile of trees that has to fit the first-level cache.
- gemm computes what bitvector does by products: far more work for trees as small as it can hold.
"""

from __future__ import annotations

from collections.abc import Collection

from hbtvm.strategies import Workload

_WARP, _LINE = 32, 128
"""Threads of a warp, and bytes of a cache line."""

_L1, _L2 = 1 << 17, 1 << 25
"""Bytes of tables that about fit a multiprocessor's own cache, and the cache that all have in common."""

_FROM_L2, _FROM_MEMORY = 2.0, 4.0
"""Lines from the first-level cache that a line from further away counts for."""

_TILE = 8
"""Trees that rows walk at about the same time."""

_NODE_LOADS = 3 / 4
"""Loads for a node of the bitvector."""

_WIDE_WORD = 1.25
"""Words of 64 bits take two instructions, and more loads."""

_STEP, _LONG_STEP = 1.25, 1.75
"""How much a walk's lines count, since each waits for the one before; and where ways are looked up instead
of computed, and ends tested for."""


def default_on_cuda(strategies: Collection[str], workload: Workload) -> str:
    """The strategy that should be fastest on a GPU, among those that can hold the forest.

    A warp that has fewer rows than threads waits more than it works: a walk's steps depend on each other,
    bitvector's loads on nothing, so it goes first where it can hold the trees.
    """
    if int(workload["rows"]) < _WARP and "bitvector" in strategies:
        return "bitvector"
    lines = {name: found for name, found in _lines(workload).items() if name in strategies}
    return min(lines, key=lambda name: lines[name]) if lines else next(iter(strategies))


def _lines(workload: Workload) -> dict[str, float]:
    """About how many lines a warp's loads take for one tree, by strategy."""
    leaves, depth, nodes = int(workload["leaves"]), int(workload["depth"]), int(workload["nodes"])
    node = 8 if workload["dtype"] == "float32" else 16
    value = (4 if workload["value_dtype"] == "float32" else 8) * int(workload["width"])
    trees = int(workload["trees"]) * int(workload["groups"])
    tests = max(leaves - 1, 1) * (1 + _NODE_LOADS) * (1.0 if leaves <= 32 else _WIDE_WORD)
    full = 2**depth

    def walk(size: int, slots: int) -> float:
        # With `slots` at the last level and all above it, and a leaf's value at the end.
        levels = sum(_apart(min(2**level * size, slots * size)) for level in range(depth))
        return (levels + _apart(slots * value)) * _distance(slots * size, trees) + depth

    return {
        "bitvector": tests + _apart(leaves * value),
        "perfect_tree_traversal": _STEP * walk(node, full),
        # Leaves take slots among the nodes, side by side with their siblings.
        "tree_traversal": _LONG_STEP * walk(node, nodes),
    }


def _apart(size: float) -> float:
    """Lines that the rows of a warp ask for together, each anywhere in so many bytes."""
    return min(_WARP, max(1.0, size / _LINE))


def _distance(size: float, trees: int) -> float:
    """How much a line counts, where each of the trees' tables takes so many bytes."""
    if size * min(trees, _TILE) <= _L1:
        return 1.0
    return _FROM_L2 if size * trees <= _L2 else _FROM_MEMORY
