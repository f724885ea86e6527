"""Flattened loop context: every loop's context vector, one after another (AutoTVM, figure 9).

Unlike context relation features it tells loops apart by position, so it says more about one program and
carries over less to programs of another form. It is the TreeGRU's input, too: the context ``shared`` makes
it a loop tree.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hbtvm.cost_model.context import Contexts, Integers, contexts
from hbtvm.cost_model.nest import Nest

STATEMENTS, LEVELS = 6, 13
"""Most statements, and most levels of one (its loops, outermost first, then its body). Of a program with more
statements, those with the most operations are kept; of a deep statement, the innermost loops are left out."""

CONTEXT = (
    "present",  # 1 for a level that there is
    "shared",  # 1 for a loop that is around the statement before as well: one node of the loop tree
    "extent",
    "vectorized",
    "unrolled",
    "parallel",
    "outer",  # times the level is entered
    "inner",  # body executions in one pass
    "bytes",  # cache lines touched in one pass
    "reuse",  # the most body executions for each different element of an access
    "stride",  # the longest step of an access between iterations, in bytes
    "still",  # accesses that the loop does not move
    "gathers",  # accesses whose address depends on data
    "stores",
    "operations",  # of one body execution; 0 but for the body
    "lane_bytes",  # likewise
)
"""A level's context vector: the first two as they are, the others as log2(1 + x)."""

FLAT_NAMES = tuple(
    f"{name}@{statement}.{level}"
    for statement in range(STATEMENTS)
    for level in range(LEVELS)
    for name in CONTEXT
)
"""Names of the columns of `flat_features`."""


def flat_features(nests: Sequence[Nest]) -> NDArray[np.float32]:
    """Describe each of n programs by all its loops in order.

    Returns
    -------
    numpy.ndarray
        Finite float32 values of shape (n, len(FLAT_NAMES)), in the order (statement, level, context).
        Levels that a program does not have are zeros.
    """
    context = contexts(nests)
    statement, place = _kept(context)
    depth = context.depth[statement]
    level = np.arange(LEVELS)[:, None]
    # The body ends the statement, so it is kept whatever is left out before it.
    body = np.minimum(depth, LEVELS - 1)
    rows = _levels(context)[np.where(level < body, level, depth), statement]
    rows[level > body] = 0
    shared = _shared(context, statement, place)[: LEVELS - 1]
    rows[: len(shared), :, CONTEXT.index("shared")] = shared
    table = np.zeros((len(nests), STATEMENTS, LEVELS, len(CONTEXT)), dtype=np.float32)
    table[context.program[statement], place] = rows.transpose(1, 0, 2)
    return table.reshape(len(nests), len(FLAT_NAMES))


def _kept(context: Contexts) -> tuple[Integers, Integers]:
    """Of each program the statements with the most work, in order; and their places among them."""
    program = context.program
    begin = np.searchsorted(program, np.arange(context.n))
    order = np.lexsort((-context.work, program))
    rank = np.arange(len(order)) - begin[program[order]]
    kept = np.sort(order[rank < STATEMENTS])
    begin = np.searchsorted(program[kept], np.arange(context.n))
    return kept, np.arange(len(kept)) - begin[program[kept]]


def _shared(context: Contexts, statement: Integers, place: Integers) -> NDArray[np.bool_]:
    """Which loops of some statements are around the one before as well, (L, len(statement))."""
    numbers = context.numbers[:, statement]
    there = np.arange(len(numbers))[:, None] < context.depth[statement]
    same = numbers == np.roll(numbers, 1, axis=1)
    found: NDArray[np.bool_] = np.logical_and.accumulate(same & there & (place > 0), axis=0)
    return found


def _levels(context: Contexts) -> NDArray[np.float32]:
    """Context vectors of all statements' levels, (L + 1, m, len(CONTEXT)); ``shared`` is left open."""
    accesses = context.accesses
    of, (deep, m) = accesses.statement, context.inner.shape
    most = {"reuse": np.zeros((deep, m)), "stride": np.zeros((deep - 1, m))}
    np.maximum.at(most["reuse"].T, of, (context.inner[:, of] / accesses.touched).T)
    np.maximum.at(most["stride"].T, of, (accesses.strides * accesses.bytes).T)
    present = (np.arange(deep)[:, None] <= context.depth).astype(np.float32)
    loops = present[1:]

    def counted(which: NDArray[np.bool_]) -> NDArray[np.float64]:
        found = np.zeros((deep - 1, m))
        np.add.at(found.T, of, np.broadcast_to(which, accesses.strides.shape).T)
        return found

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
