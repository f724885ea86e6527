"""Features of a whole nest: work, width, and memory traffic.

They add sums over the statements to the relation features, which are maxima over loops. Each is log2(1 + x),
so that a tree's threshold is a ratio.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hbtvm.cost_model.encoding.context import BUFFERS, OPERATIONS, Array, Contexts

ADDRESSINGS = ("broadcast", "contiguous", "strided", "gather")
CACHES = (2**12, 2**14, 2**15, 2**17, 2**19, 2**21, 2**23, 2**25)
"""Cache sizes in bytes for which memory traffic is estimated."""

REGISTER = 64  # bytes of a vector register in `registers`; another width only shifts the feature

_SUMS = (
    "iterations",  # executions of statement bodies
    "trips",  # the same, with a vector or an unrolled body counted once: loop overhead
    *(f"ops_{kind}" for kind in OPERATIONS),  # scalar operations
    "vector_ops",  # operations, with a vector counted once
    *(f"bytes_{buffer}" for buffer in BUFFERS),  # loaded and stored, cached or not
    *(f"footprint_{buffer}" for buffer in BUFFERS),  # bytes of distinct cache lines
    "bytes_stored",
    *(f"vector_{addressing}" for addressing in ADDRESSINGS),  # instructions of vector statements
    "scalar_accesses",  # instructions of scalar statements
    "scalar_gathers",
    *(f"traffic_{size}" for size in CACHES),  # bytes that miss a cache of this size
)
_MEANS = (
    "lanes",  # elements per vector
    "vector_bytes",  # bytes per vector
    "registers",  # registers that an unrolled, vectorized body needs
    "unrolled_ops",  # operations in an unrolled body
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


def totals(context: Contexts) -> NDArray[np.float32]:
    """Return the totals of n programs, (n, len(NAMES))."""
    columns = {**_of_statements(context), **_of_accesses(context), **_traffic(context)}
    sums = [_sum(context, columns[name]) for name in _SUMS]
    unrolled, parallel = context.unrolled.prod(axis=0), context.parallel.prod(axis=0)
    vector_bytes = context.lanes * context.lane_bytes
    moved = np.bincount(
        context.accesses.statement,
        context.iterations[context.accesses.statement] * context.accesses.bytes,
        len(context.depth),
    )
    values = {
        "lanes": context.lanes,
        "vector_bytes": vector_bytes,
        "registers": unrolled * np.maximum(vector_bytes / REGISTER, 1.0),
        "unrolled_ops": unrolled * context.work / context.iterations,
        "parallel": parallel,
        "intensity": context.work / np.maximum(moved, 1.0),
    }
    logs = [np.log2(1 + values[name]) for name in _MEANS]
    work = np.maximum(_sum(context, context.work), 1.0)
    maxima = np.zeros((len(_MEANS), context.n))
    for row, log in zip(maxima, logs, strict=True):
        np.maximum.at(row, context.program, log)
    rows = [
        *(np.log2(1 + total) for total in sums),
        *(_sum(context, context.work * log) / work for log in logs),
        *maxima,
        np.log2(1 + _sum(context, context.work / (context.lanes * parallel))),
    ]
    return np.stack(rows, axis=1).astype(np.float32)


def _sum(context: Contexts, values: Array) -> Array:
    """Return sums over each program's statements, (n,), of values per statement, (m,)."""
    return np.bincount(context.program, values, context.n).astype(np.float64)


def _of_statements(context: Contexts) -> dict[str, Array]:
    iterations = context.iterations
    operations = zip(OPERATIONS, context.operations, strict=True)
    return {
        "iterations": iterations,
        "trips": iterations / (context.lanes * context.unrolled.prod(axis=0)),
        "vector_ops": context.work / context.lanes,
        **{f"ops_{kind}": iterations * count for kind, count in operations},
    }


def _of_accesses(context: Contexts) -> dict[str, Array]:
    accesses = context.accesses
    of = accesses.statement
    iterations, lanes = context.iterations[of], context.lanes[of]
    moved = iterations * accesses.bytes
    # The step of the innermost vectorized loop that moves the access determines how a vector is loaded.
    step = np.zeros(len(of))
    for extents, strides in zip(context.vectorized[:, of], accesses.strides, strict=True):
        step = np.where((extents > 1) & (strides > 0), strides, step)
    wide, gather = lanes > 1, accesses.gather
    kinds = {
        "gather": gather,
        "broadcast": ~gather & (step == 0),
        "contiguous": ~gather & (step == 1),
        "strided": ~gather & (step > 1),
    }
    values = {
        "bytes_stored": np.where(accesses.store, moved, 0.0),
        "scalar_accesses": np.where(wide, 0.0, iterations),
        "scalar_gathers": np.where(~wide & gather, iterations, 0.0),
        **{
            f"vector_{kind}": np.where(wide & chosen, iterations / lanes, 0.0)
            for kind, chosen in kinds.items()
        },
    }
    for index, role in enumerate(BUFFERS):
        values[f"bytes_{role}"] = np.where(accesses.buffer == index, moved, 0.0)
        values[f"footprint_{role}"] = np.where(accesses.buffer == index, accesses.footprint[0], 0.0)
    return {
        name: np.bincount(of, value, len(context.depth)).astype(np.float64) for name, value in values.items()
    }


def _traffic(context: Contexts) -> dict[str, Array]:
    # A pass over a level whose working set fits loads it once; the outermost such level loads least. If not
    # even one execution fits, the innermost level remains.
    loaded = context.footprint * context.outer
    traffic = {}
    for size in CACHES:
        passes = np.where(context.footprint <= size, loaded, np.inf).min(axis=0)
        traffic[f"traffic_{size}"] = np.where(np.isinf(passes), loaded[-1], passes)
    return traffic
