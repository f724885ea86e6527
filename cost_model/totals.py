"""Features of a nest as a whole: how much work, how wide, how much memory traffic.

They add to the relation features what a maximum over loops cannot say: sums over the
statements. Every one is log2(1 + x), so that a tree's threshold means a ratio.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hbtvm.cost_model.context import AccessContext, StatementContext
from hbtvm.cost_model.nest import Array

OPERATIONS = ("compare", "bit", "add", "multiply", "select", "convert", "other")
BUFFERS = ("x", "table", "scratch", "out", "other")
ADDRESSINGS = ("broadcast", "contiguous", "strided", "gather")
CACHES = (2**12, 2**14, 2**15, 2**17, 2**19, 2**21, 2**23, 2**25)
"""Sizes in bytes at which memory traffic is estimated."""

REGISTER = 64
"""Bytes of a vector register in `registers`; another width shifts the feature's scale only."""

_SUMS = (
    "iterations",  # executions of statement bodies
    "trips",  # the same, counting a vector or an unrolled body as one: loop overhead
    *(f"ops_{kind}" for kind in OPERATIONS),  # scalar operations
    "vector_ops",  # operations, counting a vector as one
    *(f"bytes_{buffer}" for buffer in BUFFERS),  # loaded and stored, cached or not
    *(f"footprint_{buffer}" for buffer in BUFFERS),  # bytes of different cache lines
    "bytes_stored",
    *(f"vector_{addressing}" for addressing in ADDRESSINGS),  # instructions of vector statements
    "scalar_accesses",  # instructions of scalar statements
    "scalar_gathers",
    *(f"traffic_{size}" for size in CACHES),  # bytes that a cache of this size lets through
)
_MEANS = (
    "lanes",  # elements per vector
    "vector_bytes",  # bytes per vector
    "registers",  # registers that one unrolled, vectorized body fills
    "unrolled_ops",  # operations in one unrolled body
    "parallel",  # iterations spread over threads
    "intensity",  # operations per byte loaded or stored
)
"""Averaged over the statements in log2, each weighing as much as its work."""

NAMES = (
    *(f"sum_{name}" for name in _SUMS),
    *(f"mean_{name}" for name in _MEANS),
    *(f"max_{name}" for name in _MEANS),
    "work_per_thread",
)


class Totals:
    """Takes in one statement after another, and keeps sums, weighted means and maxima.

    Parameters
    ----------
    n
        Number of configurations.
    """

    def __init__(self, n: int) -> None:
        self.sums = {name: np.zeros(n) for name in _SUMS}
        self.means = {name: np.zeros(n) for name in _MEANS}
        self.maxima = {name: np.zeros(n) for name in _MEANS}
        self.work = np.zeros(n)
        self.work_per_thread = np.zeros(n)

    def add(self, statement: StatementContext) -> None:
        """Take in one statement."""
        iterations, lanes = statement.iterations, statement.lanes
        unrolled = statement.unrolled.prod(axis=0)
        parallel = statement.parallel.prod(axis=0)
        body = statement.work / iterations
        self.sums["iterations"] += iterations
        self.sums["trips"] += iterations / (lanes * unrolled)
        self.sums["vector_ops"] += statement.work / lanes
        for kind, count in statement.operations.items():
            self.sums[f"ops_{kind if kind in OPERATIONS else 'other'}"] += iterations * count
        moved = np.zeros_like(iterations)
        for access in statement.accesses:
            moved += self._access(statement, access)
        self._traffic(statement)

        vector_bytes = lanes * statement.lane_bytes
        values = {
            "lanes": lanes,
            "vector_bytes": vector_bytes,
            "registers": unrolled * np.maximum(vector_bytes / REGISTER, 1.0),
            "unrolled_ops": unrolled * body,
            "parallel": parallel,
            "intensity": statement.work / np.maximum(moved, 1.0),
        }
        for name, value in values.items():
            self.means[name] += statement.work * np.log2(1 + value)
            np.maximum(self.maxima[name], np.log2(1 + value), out=self.maxima[name])
        self.work += statement.work
        self.work_per_thread += statement.work / (lanes * parallel)

    def _access(self, statement: StatementContext, context: AccessContext) -> Array:
        access, iterations, lanes = context.access, statement.iterations, statement.lanes
        role = access.buffer if access.buffer in BUFFERS else "other"
        moved = iterations * access.bytes
        self.sums[f"bytes_{role}"] += moved
        self.sums[f"footprint_{role}"] += context.footprint[0]
        if access.store:
            self.sums["bytes_stored"] += moved
        # The step of the innermost vectorized loop that moves decides how a vector is loaded.
        step = np.zeros_like(iterations)
        for extents, strides in zip(statement.vectorized, context.strides, strict=True):
            step = np.where((extents > 1) & (strides > 0), strides, step)
        wide = lanes > 1
        kinds = {
            "gather": np.full_like(wide, access.gather),
            "broadcast": ~np.bool_(access.gather) & (step == 0),
            "contiguous": ~np.bool_(access.gather) & (step == 1),
            "strided": ~np.bool_(access.gather) & (step > 1),
        }
        for kind, chosen in kinds.items():
            self.sums[f"vector_{kind}"] += np.where(wide & chosen, iterations / lanes, 0.0)
        self.sums["scalar_accesses"] += np.where(wide, 0.0, iterations)
        if access.gather:
            self.sums["scalar_gathers"] += np.where(wide, 0.0, iterations)
        return np.asarray(moved, dtype=np.float64)

    def _traffic(self, statement: StatementContext) -> None:
        footprint = statement.footprint
        # Each pass over a level whose working set fits loads it once; the outermost such
        # level loads least. Where not even one execution fits, that is what is left.
        loaded = footprint * statement.outer
        for size in CACHES:
            passes = np.where(footprint <= size, loaded, np.inf).min(axis=0)
            self.sums[f"traffic_{size}"] += np.where(np.isinf(passes), loaded[-1], passes)

    def result(self) -> NDArray[np.float32]:
        """The features, (n, len(NAMES))."""
        work = np.maximum(self.work, 1.0)
        rows = [
            *(np.log2(1 + value) for value in self.sums.values()),
            *(value / work for value in self.means.values()),
            *self.maxima.values(),
            np.log2(1 + self.work_per_thread),
        ]
        return np.stack(rows, axis=1).astype(np.float32)
