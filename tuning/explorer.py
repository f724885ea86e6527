"""What searches a space: the interface, and how to get one by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, runtime_checkable

import numpy as np

from schedules.space import Config, Space
from tuning.choices import Choices

Point = tuple[int, ...]
"""A configuration by the positions of its choices (`schedules.space.Space.encode`)."""

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


def create(choices: Choices, space: Space, rng: np.random.Generator) -> Explorer:
    """Make the explorer that was chosen, with its ε and λ where it has them."""
    # Imported here, as they import this module; and some bring a library that others do without.
    match choices.explorer:
        case "random":
            from tuning.random_search import RandomExplorer

            return RandomExplorer(space, rng)
        case "grid":
            from tuning.grid import GridExplorer

            return GridExplorer(space)
        case "genetic":
            from tuning.genetic import GeneticExplorer

            return GeneticExplorer(space, rng)
        case "tpe":
            from tuning.tpe import TpeExplorer

            return TpeExplorer(space, rng)
        case "metaschedule":
            from tuning.metaschedule import MetaScheduleExplorer

            return MetaScheduleExplorer(space, rng)
    from tuning.annealing import AnnealingExplorer, AnnealingOptions

    options = AnnealingOptions(epsilon=choices.epsilon, ratio=choices.diversity)
    return AnnealingExplorer(space, rng, options)
