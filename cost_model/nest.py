"""What the features need to know of a loop nest, without knowing who describes it.

These protocols match `hbtvm.schedules.loops`; see there for what each attribute means. Numbers
are shared by all n configurations of a batch, or are arrays of shape (n,).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Number = int | float | np.ndarray
Array = NDArray[np.float64]

SERIAL, UNROLLED, VECTORIZED, PARALLEL = 0, 1, 2, 3
"""Kinds of loop. A kind that is not among them counts as serial."""


class Loop(Protocol):
    """One loop; of extent 1 where a configuration does not have it."""

    @property
    def extent(self) -> Number: ...

    @property
    def kind(self) -> Number: ...


class Access(Protocol):
    """One buffer that a statement touches."""

    @property
    def buffer(self) -> str: ...

    @property
    def bytes(self) -> Number: ...

    @property
    def strides(self) -> Sequence[Number]: ...

    @property
    def store(self) -> bool: ...

    @property
    def gather(self) -> bool: ...

    @property
    def span(self) -> Number: ...


class Statement(Protocol):
    """One innermost statement under its loops, outermost first."""

    @property
    def loops(self) -> Sequence[Loop]: ...

    @property
    def operations(self) -> Mapping[str, Number]: ...

    @property
    def accesses(self) -> Sequence[Access]: ...

    @property
    def lane_bytes(self) -> Number: ...


Nest = Sequence[Statement]
