"""Flattened loop context: every loop's context vector, one after another (AutoTVM, figure 9).

Unlike context relation features it tells loops apart by position, so it says more about one program and
carries over less to programs of another form. It is the TreeGRU's input, too: the context ``shared`` makes
it a loop tree.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hbtvm.cost_model.context import Contexts, contexts
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
    levels = _levels(context)
    table = np.zeros((len(nests), STATEMENTS, LEVELS, len(CONTEXT)), dtype=np.float32)
    for program in range(len(nests)):
        own = np.flatnonzero(context.program == program)
        most = np.argsort(-context.work[own], kind="stable")[:STATEMENTS]
        above = None
        for place, statement in enumerate(own[np.sort(most)]):
            depth = int(context.depth[statement])
            # The body ends the statement, so it is kept whatever is left out before it.
            kept = [*range(min(depth, LEVELS - 1)), depth]
            rows = levels[:, statement].copy()
            if above is not None:
                both = context.numbers[:depth, statement] == context.numbers[:depth, above]
                rows[:depth, 1] = np.logical_and.accumulate(both)
            table[program, place, : len(kept)] = rows[kept]
            above = statement
    return table.reshape(len(nests), len(FLAT_NAMES))


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
