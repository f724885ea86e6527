"""Choose the default strategy on a GPU without measurements of the model.

The choice rests on a model of memory accesses. A multiprocessor's load/store unit handles one cache line of
128 bytes at a time, so the cost of a strategy is how many different lines the 32 rows of a warp request:

- In shared memory, neighbouring rows' values of a column are adjacent: one line for each node tested.
- bitvector tests every node of a tree. All rows request the same one, and three loads fetch four nodes.
- Walks test one node on each level. Rows diverge on the way down: at level l they request up to
  2 ** l nodes, as far as the tree has so many, and at most 32 lines.
- Lines from the second-level cache or from memory take longer. Blocks process the trees in
  about the same order, so a tile of trees has to fit the first-level cache.
- Ranked walks read a word and a rank of each level from shared memory: a line for each rank, and for a word
  as many as rows of a warp meet in a bank. Words of large trees do not fit there: walks load them as they do
  nodes, of which they are the shorter ones.
- oblivious makes one test on each level for all rows of a warp, and so is first where `oblivious.pays`.
- gemm does the work of bitvector by products: far more operations for trees as small as it can hold.

Factors of ranked walks are by ``python -m benchmarks.gpu.bounds``; those of the others by the fastest of
about 50 configurations of each model and batch, of 100,000 and 1,000,000 rows, measured on an H200.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from hbtvm.schedules.cuda.space import FEW_ROWS
from hbtvm.schedules.workload import Workload
from hbtvm.strategies.trees import oblivious

_WARP, _LINE = 32, 128  # threads of a warp, and bytes of a cache line

_L1, _L2 = 1 << 17, 1 << 25
"""Bytes of tables that about fit a multiprocessor's L1 cache, and the shared L2 cache."""

_FROM_L2, _FROM_MEMORY = 2.0, 4.0
"""Cost of a line from the L2 cache and from memory, in lines from the L1 cache."""

_SEARCHED = 256  # fewest rows for which searches of ranks hide each other's latency
_TILE = 8  # trees whose tables are in use at about the same time
_NODE_LOADS = 3 / 4  # loads for a node of the bitvector
_NARROW = 32  # most leaves of trees for which the bitvector takes words of 32 bits
_WIDE_WORD = 1.25  # cost factor of 64-bit words, which take two instructions and more loads

_NODE_STEP = 1.65  # cost factor of the bitvector's lines: each also takes the ALU's tests and masks

_STEP, _LONG_STEP = 1.55, 2.75
"""Cost factors of a walk's lines, since each load waits for the previous load: with computed children, and
with looked-up children and tests for leaves."""

_RANKED_STEP, _MEETING, _FULL = 1.5, 3.4, 2
"""The same for ranked walks, of which two loads wait for each other; the most rows that mostly meet in a
bank; and the part of a perfect tree's leaves from which on its rows go through all levels."""

_WORD = 4  # bytes of a ranked walk's nodes


def default_on_cuda(strategies: Collection[str], workload: Workload) -> str:
    """Return the strategy that should be fastest on a GPU, among those that can hold the forest.

    A warp with fewer rows than threads is bound by latency: a walk's loads depend on each other,
    bitvector's do not, so bitvector comes first where a 32-bit word can hold a tree. Ranked walks have to
    wait for ranks, too, so they come last there. oblivious waits for them in calls of up to `_SEARCHED` rows,
    in which a multiprocessor has a row or two.
    """
    rows = int(workload["rows"])
    if "oblivious" in strategies and oblivious.pays(workload) and rows >= _SEARCHED:
        return "oblivious"
    few = rows < _WARP
    if few and "bitvector" in strategies and int(workload["leaves"]) <= _NARROW:
        return "bitvector"
    lines = {name: line for name, line in _lines(workload).items() if name in strategies}
    if rows <= FEW_ROWS and "ranked_traversal" in lines:
        # A search's loads wait for each other before those of a walk do, two for each level.
        lines["ranked_traversal"] *= 1 + int(workload["rank_bits"]) / (2 * max(int(workload["depth"]), 1))
    if few and len(lines) > 1:
        lines.pop("ranked_traversal", None)
    return min(lines, key=lambda name: lines[name]) if lines else next(iter(strategies))


def _lines(workload: Workload) -> dict[str, float]:
    """Estimate the lines of a warp's loads for a tree, by strategy."""
    leaves, depth, nodes = int(workload["leaves"]), int(workload["depth"]), int(workload["nodes"])
    node = 8 if workload["dtype"] == "float32" else 16
    value = (4 if workload["value_dtype"] == "float32" else 8) * int(workload["width"])
    trees = int(workload["trees"]) * int(workload["groups"])
    tests = max(leaves - 1, 1) * (1 + _NODE_LOADS) * (1.0 if leaves <= _NARROW else _WIDE_WORD)
    full = 2**depth

    def walk(size: int, slots: int, steps: float = depth) -> float:
        # With `slots` at the last level and all above it, and a leaf's value at the end.
        lines = [_distinct_lines(min(2**level * size, slots * size)) for level in range(depth)]
        levels = sum(lines) * steps / max(depth, 1)
        return (levels + _distinct_lines(slots * value)) * _line_cost(slots * size, trees) + steps

    # Words of nodes in shared memory, where rows of a warp meet in banks, and a rank for each.
    met = [min(_MEETING, 1 + min(2**level, nodes) / (2 * _WARP)) for level in range(depth)]
    steps = depth if leaves * _FULL > full else _longest_path(leaves, depth)
    ranked = _RANKED_STEP * ((sum(met) / max(depth, 1) + 1) * steps + _distinct_lines(leaves * value))
    if nodes * (_WORD + value) * min(trees, _TILE) > _L1:
        ranked = _LONG_STEP * walk(_WORD, nodes, steps)
    return {
        "bitvector": _NODE_STEP * tests + _distinct_lines(leaves * value),
        "ranked_traversal": ranked,
        "perfect_tree_traversal": _STEP * walk(node, full),
        # Leaves take slots among the nodes, side by side with their siblings.
        "tree_traversal": _LONG_STEP * walk(node, nodes, _longest_path(leaves, depth)),
    }


def _longest_path(leaves: int, depth: int) -> float:
    """Estimate the longest path of a warp's rows through a tree.

    Between those of a balanced tree and of the deepest leaf: 11 of 17 levels for LightGBM's trees of 31
    leaves, where 10.4 were counted; 18 of 24 for forests of 3,000 leaves, where 19.5 were.
    """
    return (math.log2(max(leaves, 1)) + depth) / 2


def _distinct_lines(size: float) -> float:
    """Return the distinct lines of a warp's rows, each at a random position within `size` bytes."""
    return min(_WARP, max(1.0, size / _LINE))


def _line_cost(size: float, trees: int) -> float:
    """Return the cost of a line if each tree's tables take `size` bytes."""
    if size * min(trees, _TILE) <= _L1:
        return 1.0
    return _FROM_L2 if size * trees <= _L2 else _FROM_MEMORY
