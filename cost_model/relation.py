"""Context relation features: a fixed-length summary of any number of loops.

AutoTVM, section 4: with Z the context matrix, one row for each loop, and thresholds
beta_1 < beta_2 < ..., the relation between quantities i and j is

    R_t = max { Z_ki : k with Z_kj < beta_t }

e.g. "the most often that a working set below 32 KiB is passed over". It reads the same
whatever the program, so what is learned of one workload holds for the next.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hbtvm.cost_model.context import StatementContext
from hbtvm.cost_model.nest import Array

THRESHOLDS: dict[str, tuple[float, ...]] = {
    # Extents are mostly powers of two: thresholds lie between them, so that rounding never
    # decides. The last one takes in every loop.
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


class Relations:
    """Takes in the loops of one statement after another, and keeps the maxima.

    Parameters
    ----------
    n
        Number of configurations.
    """

    def __init__(self, n: int) -> None:
        self._columns = np.arange(n)
        # One slot for each threshold, and one more that collects what is not to count.
        self._loops = {j: _slots(j, len(row), n) for j, row in LOOP_PAIRS.items()}
        self._accesses = {j: _slots(j, len(row), n) for j, row in ACCESS_PAIRS.items()}

    def add(self, statement: StatementContext) -> None:
        """Take in every loop, and every access in it, of a statement."""
        total = np.log2(np.maximum(statement.footprint, 1.0))
        rows = {
            "inner": np.log2(statement.inner),
            "outer": np.log2(statement.outer),
            "bytes": total,
            "extent": np.log2(statement.extents),
            "vectorized": np.log2(statement.vectorized),
            "unrolled": np.log2(statement.unrolled),
            "parallel": np.log2(statement.parallel),
        }
        for loop in range(len(statement.extents)):
            # A loop that runs once is no loop: it must not change a feature.
            absent = statement.extents[loop] == 1
            point = {name: row[loop] for name, row in rows.items()}
            self._enter(point, LOOP_PAIRS, self._loops, absent)
            for access in statement.accesses:
                size = np.log2(access.footprint[loop])
                own = {
                    "reuse": np.log2(statement.inner[loop] / access.touched[loop]),
                    "stride": np.log2(access.strides[loop] * access.access.bytes + 1),
                    "gather_bytes": size if access.access.gather else np.zeros_like(size),
                }
                self._enter(point | own, ACCESS_PAIRS, self._accesses, absent)

    def _enter(
        self,
        point: dict[str, Array],
        pairs: dict[str, tuple[str, ...]],
        kept: dict[str, NDArray[np.float32]],
        absent: NDArray[np.bool_],
    ) -> None:
        for j, row in pairs.items():
            # Entering a value at the first threshold above it is enough: `result` carries it on.
            slots = np.searchsorted(THRESHOLDS[j], point[j], side="right")
            slots[absent] = len(THRESHOLDS[j])
            values = np.empty((len(self._columns), len(row)), dtype=np.float32)
            for place, i in enumerate(row):
                values[:, place] = point[i]
            maxima = kept[j]
            maxima[slots, self._columns] = np.maximum(maxima[slots, self._columns], values)

    def result(self) -> NDArray[np.float32]:
        """The features, (n, len(NAMES)), in log2; 0 where no loop is below a threshold."""
        rows = [
            np.maximum.accumulate(maxima[:-1, :, place], axis=0)
            for kept in (self._loops, self._accesses)
            for maxima in kept.values()
            for place in range(maxima.shape[2])
        ]
        table: NDArray[np.float32] = np.concatenate(rows).T
        return table


def _slots(j: str, quantities: int, n: int) -> NDArray[np.float32]:
    return np.zeros((len(THRESHOLDS[j]) + 1, n, quantities), dtype=np.float32)
