"""What searches a space: the interface of explorers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable

import numpy as np

from hbtvm.schedules.space import Config

Point = tuple[int, ...]
"""A configuration by the positions of its choices (`hbtvm.schedules.space.Space.encode`)."""

Score = Callable[[list[Config]], np.ndarray]
"""Predicted merit of configurations, higher is better; only the order means something."""


@runtime_checkable
class BatchScore(Protocol):
    """A `Score` that may know, too, which configurations are worth trying together."""

    def __call__(self, configs: list[Config], /) -> np.ndarray: ...

    def pick(self, configs: list[Config], count: int) -> list[int] | None:
        """Indices of a batch, best first; None to leave the choice to the explorer."""
        ...


class Explorer(Protocol):
    """Chooses what to measure next in one space."""

    def propose(self, count: int, measured: Mapping[Point, float]) -> list[Config]:
        """Pick configurations to measure.

        Parameters
        ----------
        count
            Number wanted; fewer come back only where the space has no more to give.
        measured
            Seconds of what was measured before, infinite where it failed. None of these
            is proposed again.
        """
        ...

    def update(self, score: Score | None) -> None:
        """Take a new cost model, or None where there is none (yet)."""
        ...
