"""What searches a space: the interface, and how to get one by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from schedules.space import Config, Space

Point = tuple[int, ...]
"""A configuration by the positions of its choices (`schedules.space.Space.encode`)."""

Score = Callable[[list[Config]], np.ndarray]
"""Predicted merit of configurations, higher is better; only the order means something."""


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


def create(kind: str, space: Space, rng: np.random.Generator) -> Explorer:
    """Make an explorer by name: ``"annealing"`` or ``"random"``.

    Raises
    ------
    ValueError
        If there is no explorer of that name.
    """
    from tuning.annealing import AnnealingExplorer
    from tuning.random_search import RandomExplorer

    if kind == "annealing":
        return AnnealingExplorer(space, rng)
    if kind == "random":
        return RandomExplorer(space, rng)
    raise ValueError(f"unknown explorer {kind!r}; choose 'annealing' or 'random'")
