"""Flattened loop context: every loop's context vector in order (AutoTVM, figure 9).

Loops are distinguished by position. These features describe one program more precisely than context relation
features, and transfer less to programs of another form. They are also the TreeGRU's input: the context
``shared`` makes them a loop tree.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hbtvm.cost_model.encoding.context import Contexts, Integers, contexts
from hbtvm.cost_model.encoding.nest import Nest

STATEMENTS, LEVELS = 6, 13
"""Maximal number of statements, and of levels of a statement (its loops, outermost first, then its body). Of
larger programs, the statements with the most operations are kept; of deeper statements, the outermost
loops."""

CONTEXT = (
    "present",  # 1 for an existing level
    "shared",  # 1 for a loop that also surrounds the previous statement: one node of the loop tree
    "extent",
    "vectorized",
    "unrolled",
    "parallel",
    "outer",  # entries to the level
    "inner",  # body executions in one pass
    "bytes",  # cache lines touched in one pass
    "reuse",  # the most body executions per distinct element of an access
    "stride",  # the longest step of an access between iterations, in bytes
    "still",  # accesses that the loop does not move
    "gathers",  # accesses whose address depends on data
    "stores",
    "operations",  # of one body execution; 0 except for the body
    "lane_bytes",  # 0 except for the body
)
"""A level's context vector: the first two unchanged, the others as log2(1 + x)."""

FLAT_NAMES = tuple(
    f"{name}@{statement}.{level}"
    for statement in range(STATEMENTS)
    for level in range(LEVELS)
    for name in CONTEXT
)
"""Names of the columns of `flat_features`."""


def flat_features(nests: Sequence[Nest]) -> NDArray[np.float32]:
    """Describe each of n programs by all its loops in order.

    Returns finite float32 values of shape (n, len(FLAT_NAMES)), in the order (statement, level, context).
    Missing levels are zeros.
    """
    context = contexts(nests)
    statement, place = _kept(context)
    depth = context.depth[statement]
    level = np.arange(LEVELS)[:, None]
    # The body ends the statement and is always kept.
    body = np.minimum(depth, LEVELS - 1)
    rows = _levels(context)[np.where(level < body, level, depth), statement]
    rows[level > body] = 0
    shared = _shared(context, statement, place)[: LEVELS - 1]
    rows[: len(shared), :, CONTEXT.index("shared")] = shared
    table = np.zeros((len(nests), STATEMENTS, LEVELS, len(CONTEXT)), dtype=np.float32)
    table[context.program[statement], place] = rows.transpose(1, 0, 2)
    return table.reshape(len(nests), len(FLAT_NAMES))


def _kept(context: Contexts) -> tuple[Integers, Integers]:
    """Return each program's statements with the most work, in order, and their places among them."""
    program = context.program
    begin = np.searchsorted(program, np.arange(context.n))
    order = np.lexsort((-context.work, program))
    rank = np.arange(len(order)) - begin[program[order]]
    kept = np.sort(order[rank < STATEMENTS])
    begin = np.searchsorted(program[kept], np.arange(context.n))
    return kept, np.arange(len(kept)) - begin[program[kept]]


def _shared(context: Contexts, statement: Integers, place: Integers) -> NDArray[np.bool_]:
    """Return which loops also surround the previous statement, (L, len(statement))."""
    numbers = context.numbers[:, statement]
    there = np.arange(len(numbers))[:, None] < context.depth[statement]
    same = numbers == np.roll(numbers, 1, axis=1)
    shared: NDArray[np.bool_] = np.logical_and.accumulate(same & there & (place > 0), axis=0)
    return shared


def _levels(context: Contexts) -> NDArray[np.float32]:
    """Return the context vectors of all statements' levels, (L + 1, m, len(CONTEXT)); ``shared`` is left
    unset.
    """
    accesses = context.accesses
    of, (deep, m) = accesses.statement, context.inner.shape
    most = {"reuse": np.zeros((deep, m)), "stride": np.zeros((deep - 1, m))}
    np.maximum.at(most["reuse"].T, of, (context.inner[:, of] / accesses.touched).T)
    np.maximum.at(most["stride"].T, of, (accesses.strides * accesses.bytes).T)
    present = (np.arange(deep)[:, None] <= context.depth).astype(np.float32)
    loops = present[1:]

    def counted(which: NDArray[np.bool_]) -> NDArray[np.float64]:
        sums = np.zeros((deep - 1, m))
        np.add.at(sums.T, of, np.broadcast_to(which, accesses.strides.shape).T)
        return sums

    rows = {
        "outer": context.outer,
        "inner": context.inner,
        "bytes": context.footprint,
        "reuse": most["reuse"],
        "extent": context.extents,
        "vectorized": context.vectorized - 1,
        "unrolled": context.unrolled - 1,
        "parallel": context.parallel - 1,
        "stride": most["stride"],
        "still": counted(accesses.strides == 0),
        "gathers": counted(accesses.gather),
        "stores": counted(accesses.store),
    }
    levels = np.zeros((deep, m, len(CONTEXT)), dtype=np.float32)
    levels[..., 0] = present
    for name, row in rows.items():
        there = present if len(row) == deep else loops
        levels[: len(row), :, CONTEXT.index(name)] = np.log2(1 + row) * there
    for name, row in (("operations", context.operations.sum(axis=0)), ("lane_bytes", context.lane_bytes)):
        levels[context.depth, np.arange(m), CONTEXT.index(name)] = np.log2(1 + row)
    return levels
