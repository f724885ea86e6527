"""Context vectors: properties of each loop of a nest (AutoTVM, section 4 and figure 3b).

A statement with L loops has L + 1 *levels*: level k is the subtree under loop k, and level L one execution of
the body. The statements of all programs in a batch are computed at once, as columns of arrays. Shorter nests
are padded with innermost loops of one iteration, which change nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hbtvm.cost_model.encoding.nest import PARALLEL, UNROLLED, VECTORIZED, Nest, Statement

Array = NDArray[np.float64]
Integers = NDArray[np.intp]
Flags = NDArray[np.bool_]

CACHE_LINE = 64  # bytes per cache line

OPERATIONS = ("compare", "bit", "add", "multiply", "select", "convert", "other")
BUFFERS = ("x", "table", "scratch", "out", "other")


@dataclass(frozen=True)
class AccessContexts:
    """The accesses of all statements; p in number."""

    statement: Integers  # the statement's column, (p,)
    buffer: Integers  # index into `BUFFERS`, (p,)
    bytes: Array  # size of an element, (p,)
    # `store`, `gather`: as in `hbtvm.cost_model.encoding.nest.Access`, (p,)
    store: Flags
    gather: Flags
    strides: Array  # elements between iterations, (L, p), never negative; 0 for a loop that runs once
    touched: Array  # distinct elements in one pass of each level's subtree, (L + 1, p)
    footprint: Array  # bytes of the cache lines of these elements, (L + 1, p)


@dataclass(frozen=True)
class Contexts:
    """The statements of n programs; m in number, with at most L loops."""

    n: int  # number of programs
    # `program`, `position`: the program of each statement, and its position there, (m,)
    program: Integers
    position: Integers
    depth: Integers  # number of loops, (m,)
    numbers: Integers  # `hbtvm.cost_model.encoding.nest.Loop.number` of each loop, (L, m); -1 without a loop
    extents: Array  # iterations of each loop, (L, m), at least 1
    # `vectorized`, `unrolled`, `parallel`: the same, with 1 for loops of other kinds
    vectorized: Array
    unrolled: Array
    parallel: Array
    outer: Array  # number of entries to each level: product of the loops around it, (L + 1, m)
    inner: Array  # body executions in one pass of each level (bottom-up product), (L + 1, m)
    footprint: Array  # bytes of cache lines that each level touches in all buffers, (L + 1, m)
    operations: Array  # arithmetic operations in one body execution, by `OPERATIONS`, (len(OPERATIONS), m)
    lane_bytes: Array  # width of a vector's elements in bytes, (m,)
    accesses: AccessContexts  # the statements' accesses

    @property
    def iterations(self) -> Array:
        """Executions of the body, (m,)."""
        first: Array = self.inner[0]
        return first

    @property
    def lanes(self) -> Array:
        """Elements per vector instruction of each statement, (m,)."""
        return np.asarray(self.vectorized.prod(axis=0))

    @property
    def work(self) -> Array:
        """Total arithmetic operations, (m,); a bare copy counts as one per execution."""
        return np.asarray(self.iterations * np.maximum(self.operations.sum(axis=0), 1.0))


def contexts(nests: Sequence[Nest]) -> Contexts:
    """Compute the contexts of n programs.

    Raises `ValueError` if an access does not have one stride for each loop.
    """
    placed = [(i, k, statement) for i, nest in enumerate(nests) for k, statement in enumerate(nest)]
    statements = [statement for _, _, statement in placed]
    depth = np.array([len(statement.loops) for statement in statements], np.intp)
    deepest = int(depth.max(initial=0))
    loops = [statement.loops for statement in statements]
    extents = np.maximum(_padded([[loop.extent for loop in nest] for nest in loops], deepest, 1), 1.0)
    kinds = _padded([[loop.kind for loop in nest] for nest in loops], deepest, 0)
    body = np.ones((1, len(statements)))
    inner = np.concatenate([np.cumprod(extents[::-1], axis=0)[::-1], body])
    accesses = _accesses(statements, extents, inner)
    footprint = np.zeros_like(inner)
    np.add.at(footprint.T, accesses.statement, accesses.footprint.T)
    operations = np.zeros((len(OPERATIONS), len(statements)))
    for column, statement in enumerate(statements):
        for kind, count in statement.operations.items():
            operations[_index(OPERATIONS, kind), column] += count
    return Contexts(
        n=len(nests),
        program=np.array([i for i, _, _ in placed], np.intp),
        position=np.array([k for _, k, _ in placed], np.intp),
        depth=depth,
        numbers=_padded([[loop.number for loop in nest] for nest in loops], deepest, -1).astype(np.intp),
        extents=extents,
        vectorized=np.where(kinds == VECTORIZED, extents, 1.0),
        unrolled=np.where(kinds == UNROLLED, extents, 1.0),
        parallel=np.where(kinds == PARALLEL, extents, 1.0),
        outer=np.concatenate([body, np.cumprod(extents, axis=0)]),
        inner=inner,
        footprint=footprint,
        operations=operations,
        lane_bytes=np.array([statement.lane_bytes for statement in statements], np.float64),
        accesses=accesses,
    )


def _accesses(statements: Sequence[Statement], extents: Array, inner: Array) -> AccessContexts:
    pairs = [(column, access) for column, nest in enumerate(statements) for access in nest.accesses]
    for column, access in pairs:
        if len(access.strides) != len(statements[column].loops):
            raise ValueError(
                f"an access to {access.buffer!r} has {len(access.strides)} strides "
                f"for {len(statements[column].loops)} loops"
            )
    statement = np.array([column for column, _ in pairs], np.intp)
    extents, inner = extents[:, statement], inner[:, statement]
    signed = _padded([access.strides for _, access in pairs], len(extents), 0)
    strides = np.where(extents > 1, np.abs(signed), 0.0)
    element = np.array([access.bytes for _, access in pairs], np.float64)
    window = np.array([[access.span for _, access in pairs]], np.float64)
    chosen = window > 1
    # Distance from the first to the last element that a level's subtree reaches.
    far = np.cumsum(((extents - 1) * strides)[::-1], axis=0)[::-1]
    reach = np.concatenate([far + window, window])
    # Data-dependent addresses lie anywhere within reach; other addresses repeat only over still loops.
    moving = np.where(strides > 0, extents, 1.0)
    ones = np.ones((1, len(pairs)))
    distinct = np.concatenate([np.cumprod(moving[::-1], axis=0)[::-1], ones])
    touched = np.minimum(np.where(chosen, inner, distinct), reach)
    # Neighbours share a cache line, as far as the smallest inner step allows.
    steps = np.where(strides > 0, strides, np.inf)
    smallest = np.concatenate([np.minimum.accumulate(steps[::-1], axis=0)[::-1], np.inf * ones])
    apart = np.where(chosen, CACHE_LINE, np.minimum(smallest * element, CACHE_LINE))
    return AccessContexts(
        statement=statement,
        buffer=np.array([_index(BUFFERS, access.buffer) for _, access in pairs], np.intp),
        bytes=element,
        store=np.array([access.store for _, access in pairs], np.bool_),
        gather=np.array([access.gather for _, access in pairs], np.bool_),
        strides=strides,
        touched=touched,
        footprint=np.maximum(np.minimum(touched * apart, reach * element), CACHE_LINE),
    )


def _index(names: tuple[str, ...], name: str) -> int:
    return names.index(name if name in names else "other")


def _padded(rows: Sequence[Sequence[float]], length: int, fill: float) -> Array:
    """Return rows as columns of an array, (length, len(rows)), padded with `fill`."""
    table = np.full((len(rows), length), fill, np.float64)
    for line, row in zip(table, rows, strict=True):
        line[: len(row)] = row
    return np.asarray(table.T)
