"""Context vectors: what each loop of a nest is like (AutoTVM, section 4 and figure 3b).

A statement with L loops has L + 1 *levels*: level k is the subtree under loop k, and level
L one execution of the body. Everything is computed for n configurations at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from hbtvm.cost_model.nest import PARALLEL, UNROLLED, VECTORIZED, Access, Array, Nest, Number, Statement

CACHE_LINE = 64
"""Bytes that memory moves at once."""


@dataclass(frozen=True)
class AccessContext:
    """What one access of a statement is like at each of its levels.

    Attributes
    ----------
    access
        The access itself.
    strides
        Elements between iterations, (L, n); 0 for a loop that runs once.
    touched
        Different elements in one pass of each level's subtree, (L + 1, n).
    footprint
        Bytes in the cache lines that they lie in, (L + 1, n).
    """

    access: Access
    strides: Array
    touched: Array
    footprint: Array


@dataclass(frozen=True)
class StatementContext:
    """What one statement and its loops are like.

    Attributes
    ----------
    extents
        Iterations of each loop, (L, n), at least 1.
    vectorized, unrolled, parallel
        The same, with 1 for each loop of another kind.
    outer
        Times that each level is entered: product of the loops around it, (L + 1, n).
    inner
        Body executions in one pass of each level (bottom-up product), (L + 1, n).
    accesses
        One entry for each buffer touched.
    operations
        Arithmetic operations in one body execution, by kind, each (n,).
    lane_bytes
        Width of a vector's elements, (n,).
    """

    extents: Array
    vectorized: Array
    unrolled: Array
    parallel: Array
    outer: Array
    inner: Array
    accesses: tuple[AccessContext, ...]
    operations: dict[str, Array]
    lane_bytes: Array

    @property
    def iterations(self) -> Array:
        """Executions of the body, (n,)."""
        first: Array = self.inner[0]
        return first

    @property
    def lanes(self) -> Array:
        """Elements that a vector instruction of this statement holds, (n,)."""
        return np.asarray(self.vectorized.prod(axis=0))

    @property
    def work(self) -> Array:
        """Arithmetic operations in all, counting a bare copy as one per execution, (n,)."""
        return self.iterations * np.maximum(sum(self.operations.values()), 1.0)

    @property
    def footprint(self) -> Array:
        """Bytes of cache lines that each level touches in all buffers, (L + 1, n)."""
        return np.asarray(sum((a.footprint for a in self.accesses), np.zeros_like(self.inner)))


def contexts(nest: Nest, n: int) -> Iterator[StatementContext]:
    """Work out the context of each statement for n configurations."""
    for statement in nest:
        yield _statement(statement, n)


def _statement(statement: Statement, n: int) -> StatementContext:
    extents = np.maximum(_rows([loop.extent for loop in statement.loops], n), 1.0)
    kinds = _rows([loop.kind for loop in statement.loops], n)
    body = np.ones((1, n))
    outer = np.concatenate([body, np.cumprod(extents, axis=0)])
    inner = np.concatenate([np.cumprod(extents[::-1], axis=0)[::-1], body])
    return StatementContext(
        extents=extents,
        vectorized=np.where(kinds == VECTORIZED, extents, 1.0),
        unrolled=np.where(kinds == UNROLLED, extents, 1.0),
        parallel=np.where(kinds == PARALLEL, extents, 1.0),
        outer=outer,
        inner=inner,
        accesses=tuple(_access(access, extents, inner) for access in statement.accesses),
        operations={kind: _rows([count], n)[0] for kind, count in statement.operations.items()},
        lane_bytes=_rows([statement.lane_bytes], n)[0],
    )


def _access(access: Access, extents: Array, inner: Array) -> AccessContext:
    n = extents.shape[1]
    if len(access.strides) != len(extents):
        raise ValueError(
            f"an access to {access.buffer!r} has {len(access.strides)} strides for {len(extents)} loops"
        )
    strides = np.where(extents > 1, np.abs(_rows(access.strides, n)), 0.0)
    element = _rows([access.bytes], n)
    # Distance from the first to the last element that a level's subtree can reach.
    window = _rows([access.span], n) if access.gather else np.ones((1, n))
    far = np.cumsum(((extents - 1) * strides)[::-1], axis=0)[::-1]
    reach = np.concatenate([far + window, window])
    # A gather may land anywhere within reach; other addresses repeat only over still loops.
    moving = np.where(strides > 0, extents, 1.0)
    distinct = np.concatenate([np.cumprod(moving[::-1], axis=0)[::-1], np.ones((1, n))])
    touched = np.minimum(inner if access.gather else distinct, reach)
    # Neighbours in memory share a cache line, as far as the smallest step below allows.
    steps = np.where(strides > 0, strides, np.inf)
    smallest = np.concatenate([np.minimum.accumulate(steps[::-1], axis=0)[::-1], np.full((1, n), np.inf)])
    apart = CACHE_LINE if access.gather else np.minimum(smallest * element, CACHE_LINE)
    footprint = np.maximum(np.minimum(touched * apart, reach * element), CACHE_LINE)
    return AccessContext(access, strides, touched, footprint)


def _rows(values: Sequence[Number], n: int) -> Array:
    """Stack numbers, each shared or of shape (n,), to an array of shape (len(values), n)."""
    rows = np.empty((len(values), n))
    for row, value in zip(rows, values, strict=True):
        row[:] = value
    return rows
