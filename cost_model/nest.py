"""A scheduled program as loops, operations and memory accesses, from which loop features are computed.

A compiler describes each program as a `Nest`. This module does not depend on the operator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SERIAL, UNROLLED, VECTORIZED, PARALLEL = 0, 1, 2, 3
"""Kinds of loop."""


@dataclass(frozen=True, slots=True)
class Loop:
    """One loop.

    Attributes
    ----------
    extent
        Number of iterations.
    kind
        `SERIAL`, `UNROLLED`, `VECTORIZED` or `PARALLEL`.
    number
        Identifies loops of a program: statements with a common number share that loop.
    """

    extent: int
    kind: int = SERIAL
    number: int = 0


@dataclass(frozen=True, slots=True)
class Access:
    """An access to a buffer by a statement.

    Attributes
    ----------
    buffer
        The buffer's role: ``"x"`` (the operator's first argument), ``"table"`` (its other arguments),
        ``"out"`` (its results), ``"scratch"`` (its allocations), or another.
    bytes
        Size of one element.
    strides
        Elements between consecutive iterations of each loop of the statement, outermost first; 0 if the loop
        does not move the access.
    store
        Whether it writes.
    gather
        Whether neighbouring lanes have data-dependent addresses, so that a vector access is a gather.
    span
        Number of elements that a data-dependent address may select; 1 for other addresses.
    """

    buffer: str
    bytes: int
    strides: tuple[int, ...]
    store: bool = False
    gather: bool = False
    span: int = 1


@dataclass(frozen=True, slots=True)
class Statement:
    """An innermost statement: its loops, operations and accesses.

    Attributes
    ----------
    loops
        Surrounding loops, outermost first.
    operations
        Arithmetic operations in one scalar execution, by kind: ``compare``, ``bit``, ``add``,
        ``multiply``, ``select``, ``convert``; any other counts as ``other``.
    accesses
        Its reads and writes.
    lane_bytes
        Width of a vector's elements in bytes.
    """

    loops: tuple[Loop, ...]
    operations: Mapping[str, float]
    accesses: tuple[Access, ...]
    lane_bytes: int = 4


Nest = tuple[Statement, ...]
"""The statements of one scheduled program, in program order."""
