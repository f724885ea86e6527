"""A scheduled program as loops, operations and memory accesses, from which loop features are computed.

A compiler describes each program as a `Nest`. This module does not depend on the operator.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

SERIAL, UNROLLED, VECTORIZED, PARALLEL = 0, 1, 2, 3  # kinds of loop


@dataclass(frozen=True, slots=True)
class Loop:
    """One loop."""

    extent: int  # number of iterations
    kind: int = SERIAL  # `SERIAL`, `UNROLLED`, `VECTORIZED` or `PARALLEL`
    number: int = 0  # identifies loops of a program: statements with a common number share that loop


@dataclass(frozen=True, slots=True)
class Access:
    """An access to a buffer by a statement."""

    # The buffer's role: ``"x"`` (the operator's first argument), ``"table"`` (its other arguments), ``"out"``
    # (its results), ``"scratch"`` (its allocations), or another
    buffer: str
    bytes: int  # size of one element
    # Elements between consecutive iterations of each loop of the statement, outermost first; 0 if the loop
    # does not move the access
    strides: tuple[int, ...]
    store: bool = False  # whether it writes
    # Whether neighbouring lanes have data-dependent addresses, so that a vector access is a gather
    gather: bool = False
    span: int = 1  # number of elements that a data-dependent address may select; 1 for other addresses


@dataclass(frozen=True, slots=True)
class Statement:
    """An innermost statement: its loops, operations and accesses."""

    loops: tuple[Loop, ...]  # surrounding loops, outermost first
    # Arithmetic operations in one scalar execution, by kind: ``compare``, ``bit``, ``add``, ``multiply``,
    # ``select``, ``convert``; any other counts as ``other``
    operations: Mapping[str, float]
    accesses: tuple[Access, ...]  # its reads and writes
    lane_bytes: int = 4  # width of a vector's elements in bytes


Nest = tuple[Statement, ...]  # the statements of one scheduled program, in program order
