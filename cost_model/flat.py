"""Flattened loop context: every loop's context vector, one after another (AutoTVM, figure 9).

Unlike context relation features it keeps which loop is which, so it says more about one
program and means less for programs of another form. The TreeGRU reads it too: it holds
the whole loop tree (see `LEVELS` and the context ``shared``).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hbtvm.cost_model.context import StatementContext, contexts
from hbtvm.cost_model.nest import Nest

STATEMENTS, LEVELS = 6, 13
"""Most statements, and most levels of one (its loops, outermost first, then its body): what a nest
has beyond is left out, the innermost loops of a deep statement last."""

CONTEXT = (
    "present",  # 1 for a level that there is
    "shared",  # 1 for a loop around the statement before as well, which is the same loop in the tree
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


def flat_features(nest: Nest, n: int) -> NDArray[np.float32]:
    """Describe each of n candidates by all its loops in order.

    Parameters
    ----------
    nest
        The statements of the program; every number in it is shared or of shape (n,).
    n
        Number of configurations.

    Returns
    -------
    numpy.ndarray
        Finite float32 values of shape (n, len(FLAT_NAMES)), in the order (statement, level, context).
        Levels that a program does not have are zeros.
    """
    table = np.zeros((n, STATEMENTS, LEVELS, len(CONTEXT)), dtype=np.float32)
    above: StatementContext | None = None
    for index, statement in enumerate(contexts(nest[:STATEMENTS], n)):
        levels = _levels(statement, n)
        levels[: len(statement.extents), :, 1] = _shared(statement, above)
        kept = min(len(levels), LEVELS)
        # The body ends the statement, so it is kept whatever is left out before it.
        chosen = [*range(kept - 1), len(levels) - 1]
        table[:, index, :kept] = levels[chosen].transpose(1, 0, 2)
        above = statement
    return table.reshape(n, -1)


def _levels(statement: StatementContext, n: int) -> NDArray[np.float32]:
    """Context vectors of a statement's levels, (L + 1, n, len(CONTEXT))."""
    depth = len(statement.extents)
    levels = np.zeros((depth + 1, n, len(CONTEXT)), dtype=np.float32)
    whole = {
        "outer": statement.outer,
        "inner": statement.inner,
        "bytes": statement.footprint,
    }
    loops = {
        "extent": statement.extents,
        "vectorized": statement.vectorized - 1,
        "unrolled": statement.unrolled - 1,
        "parallel": statement.parallel - 1,
    }
    for access in statement.accesses:
        moved = access.strides * access.access.bytes
        loops["stride"] = np.maximum(loops.get("stride", 0.0), moved)
        loops["still"] = loops.get("still", 0.0) + (access.strides == 0)
        whole["reuse"] = np.maximum(whole.get("reuse", 0.0), statement.inner / access.touched)
        if access.access.gather:
            loops["gathers"] = loops.get("gathers", 0.0) + np.ones((depth, n))
        if access.access.store:
            loops["stores"] = loops.get("stores", 0.0) + np.ones((depth, n))
    levels[:, :, 0] = 1
    for name, rows in whole.items():
        levels[:, :, CONTEXT.index(name)] = np.log2(1 + rows)
    for name, rows in loops.items():
        levels[:-1, :, CONTEXT.index(name)] = np.log2(1 + rows)
    work = sum(statement.operations.values(), np.zeros(n))
    levels[-1, :, CONTEXT.index("operations")] = np.log2(1 + work)
    levels[-1, :, CONTEXT.index("lane_bytes")] = np.log2(1 + statement.lane_bytes)
    return levels


def _shared(statement: StatementContext, above: StatementContext | None) -> NDArray[np.bool_]:
    """Whether each loop is one with the loop before's at that depth, (L, n).

    Descriptions do not say which loops are the same, so loops are taken for one as far from
    the outside as their lengths and kinds agree.
    """
    depth, n = statement.extents.shape
    shared = np.zeros((depth, n), dtype=bool)
    if above is not None:
        common = min(depth, len(above.extents))
        equal = np.ones((common, n), dtype=bool)
        for field in ("extents", "vectorized", "unrolled", "parallel"):
            equal &= getattr(statement, field)[:common] == getattr(above, field)[:common]
        shared[:common] = np.logical_and.accumulate(equal, axis=0)
    return shared
