"""What a schedule's loop nest looks like, told without building it.

Every schedule can describe the program that a configuration leads to: which loops,
how long, how annotated, and which buffers each innermost statement touches. The cost
model reads its features off this description (AutoTVM, section 4: features of the loop
context mean the same for every workload), so ten thousand candidates cost
milliseconds, where lowering each would cost minutes.

All numbers are arrays over a batch of n configurations (or plain numbers, where every
configuration has the same), so a whole batch is described at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

Number = int | float | np.ndarray
"""A value shared by all configurations of a batch, or an array of shape (n,)."""

SERIAL, UNROLLED, VECTORIZED, PARALLEL = 0, 1, 2, 3
"""Kinds of loop; `Loop.kind` holds one, or an array of them."""


@dataclass(frozen=True)
class Loop:
    """One loop. A loop that a configuration does not have has extent 1.

    Attributes
    ----------
    extent
        Number of iterations.
    kind
        `SERIAL`, `UNROLLED`, `VECTORIZED` or `PARALLEL`.
    """

    extent: Number
    kind: Number = SERIAL


@dataclass(frozen=True)
class Access:
    """One buffer that a statement reads or writes.

    Attributes
    ----------
    buffer
        The buffer's role, e.g. ``"x"``, ``"table"``, ``"scratch"``, ``"out"``.
    bytes
        Size of one element.
    strides
        Elements between neighbouring iterations, one entry for each loop of the statement,
        outermost first; 0 where the loop does not move the access.
    store
        Whether it writes.
    gather
        Whether the address depends on data, so that a vector of it is a gather.
    span
        For a gather: the number of elements it may land in.
    """

    buffer: str
    bytes: Number
    strides: tuple[Number, ...]
    store: bool = False
    gather: bool = False
    span: Number = 1


@dataclass(frozen=True)
class Statement:
    """One innermost statement: its loops (outermost first), its work, and what it touches.

    Attributes
    ----------
    loops
        Surrounding loops.
    operations
        Arithmetic operations in one scalar execution, by kind, e.g. ``{"compare": 1, "bit": 1}``.
        Kinds in use: ``compare``, ``bit``, ``add``, ``multiply``, ``select``, ``convert``.
    accesses
        Buffers touched.
    lane_bytes
        Width of the values that a vector holds, in bytes.
    """

    loops: tuple[Loop, ...]
    operations: dict[str, Number]
    accesses: tuple[Access, ...]
    lane_bytes: Number = 4


Nest = tuple[Statement, ...]
"""The statements of one scheduled program."""
