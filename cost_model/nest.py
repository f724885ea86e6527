"""A scheduled program as its loops, operations and memory accesses: what loop features are computed from.

A compiler describes one program at a time as a `Nest`; nothing here knows which operator it computes.
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
        Tells loops of a program apart: statements that have a number in common share that loop.
    """

    extent: int
    kind: int = SERIAL
    number: int = 0


@dataclass(frozen=True, slots=True)
class Access:
    """One element of a buffer that a statement reads or writes.

    Attributes
    ----------
    buffer
        The buffer's role: ``"x"`` (the operator's first argument), ``"table"`` (its others), ``"out"``
        (its results), ``"scratch"`` (what it allocates), or another.
    bytes
        Size of one element.
    strides
        Elements between neighbouring iterations, one entry for each loop of the statement,
        outermost first; 0 where the loop does not move the access.
    store
        Whether it writes.
    gather
        Whether neighbouring lanes access addresses that come from data, so that a vector is a gather.
    span
        Elements of the buffer among which data choose; 1 where the address does not depend on data.
    """

    buffer: str
    bytes: int
    strides: tuple[int, ...]
    store: bool = False
    gather: bool = False
    span: int = 1


@dataclass(frozen=True, slots=True)
class Statement:
    """One innermost statement: its loops, its work, and what it accesses.

    Attributes
    ----------
    loops
        Surrounding loops, outermost first.
    operations
        Arithmetic operations in one scalar execution, by kind: ``compare``, ``bit``, ``add``,
        ``multiply``, ``select``, ``convert``; any other counts as ``other``.
    accesses
        What it reads and writes.
    lane_bytes
        Width of the values that a vector holds, in bytes.
    """

    loops: tuple[Loop, ...]
    operations: Mapping[str, float]
    accesses: tuple[Access, ...]
    lane_bytes: int = 4


Nest = tuple[Statement, ...]
"""The statements of one scheduled program, in program order."""
