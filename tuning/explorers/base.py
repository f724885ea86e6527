"""The interface of explorers, which search a space."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable

import numpy as np

from hbtvm.schedules.space import Config

Point = tuple[int, ...]
"""A configuration by the positions of its choices (`hbtvm.schedules.space.Space.encode`)."""

Score = Callable[[list[Config]], np.ndarray]
"""Predicted merit of configurations; higher is better, and only the order matters."""


@runtime_checkable
class BatchScore(Protocol):
    """A `Score` that may also pick a batch."""

    def __call__(self, configs: list[Config], /) -> np.ndarray: ...

    def pick(self, configs: list[Config], count: int) -> list[int] | None:
        """Return indices of a batch, best first; None lets the explorer choose."""
        ...


class Explorer(Protocol):
    """Chooses what to measure next in one space."""

    def propose(self, count: int, measured: Mapping[Point, float]) -> list[Config]:
        """Pick configurations to measure.

        `count`: number wanted; fewer if the space is exhausted.
        `measured`: seconds of measured configurations, infinite for failures. They are not proposed again.
        """
        ...

    def update(self, score: Score | None) -> None:
        """Take a new cost model, or None."""
        ...
