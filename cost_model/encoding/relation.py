"""Context relation features: a fixed-length summary of any number of loops.

AutoTVM, section 4: with Z the context matrix, one row for each loop, and thresholds
beta_1 < beta_2 < ..., the relation between quantities i and j is

    R_t = max { Z_ki : k with Z_kj < beta_t }

e.g. "the largest number of passes over a working set below 32 KiB". It means the same for every program, so
that models transfer between workloads.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from hbtvm.cost_model.encoding.context import Array, Contexts, Flags, Integers

THRESHOLDS: dict[str, tuple[float, ...]] = {
    # Extents are mostly powers of two: thresholds between them are insensitive to rounding. The last
    # threshold includes every loop.
    "bytes": (*np.arange(7.5, 26, 2.0).tolist(), np.inf),
    "inner": (*np.arange(1.5, 19, 2.0).tolist(), np.inf),
    "outer": (*np.arange(0.5, 17, 2.0).tolist(), np.inf),
    "stride": (0.5, 3.5, 6.5, 12.5, np.inf),
}
"""The thresholds beta of each quantity j, in log2: ``bytes`` are the cache lines touched in
one pass of the loop, ``inner`` the body executions in it, ``outer`` the times the loop is
entered, ``stride`` one more than the bytes between iterations.

The quantities i are in log2 too: those, and the loop's ``extent`` (also as ``vectorized``,
``unrolled`` or ``parallel``: 0 for another kind of loop), ``reuse`` (body executions for
each different element) and ``gather_bytes`` (cache lines in which a gather may land).
"""

LOOP_PAIRS: dict[str, tuple[str, ...]] = {
    "bytes": ("outer", "inner", "extent", "unrolled"),
    "inner": ("bytes",),
    "outer": ("bytes", "inner", "parallel"),
}
"""For each j, the quantities i of a loop: how a working set is passed over, and how it grows."""

ACCESS_PAIRS: dict[str, tuple[str, ...]] = {
    "bytes": ("reuse",),
    "inner": ("reuse", "stride", "gather_bytes"),
    "stride": ("extent", "vectorized", "reuse"),
}
"""For each j, the quantities i of one access in one loop; ``bytes`` is of all the accesses."""

_PAIRS = [(i, j) for table in (LOOP_PAIRS, ACCESS_PAIRS) for j, row in table.items() for i in row]
NAMES = tuple(f"max_{i}|{j}<2^{beta:g}" for i, j in _PAIRS for beta in THRESHOLDS[j])


def relations(context: Contexts) -> NDArray[np.float32]:
    """Compute the relation features of n programs.

    Returns (n, len(NAMES)), in log2; 0 if no loop is below a threshold.
    """
    accesses = context.accesses
    of = accesses.statement
    whole = {
        "inner": np.log2(context.inner[:-1]),
        "outer": np.log2(context.outer[:-1]),
        "bytes": np.log2(np.maximum(context.footprint[:-1], 1.0)),
        "extent": np.log2(context.extents),
        "vectorized": np.log2(context.vectorized),
        "unrolled": np.log2(context.unrolled),
        "parallel": np.log2(context.parallel),
    }
    size = np.log2(accesses.footprint[:-1])
    of_access = {
        **{name: row[:, of] for name, row in whole.items()},
        "reuse": np.log2(context.inner[:-1, of] / accesses.touched[:-1]),
        "stride": np.log2(accesses.strides * accesses.bytes + 1),
        "gather_bytes": np.where(accesses.gather, size, 0.0),
    }
    # Loops of one iteration must not change a feature.
    loops = context.extents > 1
    table: NDArray[np.float32] = np.concatenate(
        [
            *_maxima(whole, LOOP_PAIRS, context.program, loops, context.n),
            *_maxima(of_access, ACCESS_PAIRS, context.program[of], loops[:, of], context.n),
        ]
    ).T
    return table


def _maxima(
    quantities: dict[str, Array],
    pairs: dict[str, tuple[str, ...]],
    program: Integers,
    loops: Flags,
    n: int,
) -> Iterator[NDArray[np.float32]]:
    """Yield R_t of each program for each pair, (thresholds, n)."""
    owner = np.broadcast_to(program, loops.shape)[loops]
    for j, row in pairs.items():
        # Enter each value at the first threshold above it; the running maximum propagates it.
        slots = np.searchsorted(THRESHOLDS[j], quantities[j][loops], side="right")
        for i in row:
            kept = np.zeros((len(THRESHOLDS[j]), n), np.float32)
            np.maximum.at(kept.reshape(-1), slots * n + owner, quantities[i][loops].astype(np.float32))
            yield np.maximum.accumulate(kept, axis=0)
