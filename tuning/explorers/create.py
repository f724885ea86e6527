"""Explorers by name."""

from __future__ import annotations

import numpy as np

from hbtvm.schedules.space import Space
from hbtvm.tuning.choices import Choices
from hbtvm.tuning.explorers.annealing import AnnealingExplorer, AnnealingOptions
from hbtvm.tuning.explorers.base import Explorer
from hbtvm.tuning.explorers.genetic import GeneticExplorer
from hbtvm.tuning.explorers.grid import GridExplorer
from hbtvm.tuning.explorers.random_search import RandomExplorer

_LOWERED = {"chains": 32, "steps": 4, "scan": 32}
"""Annealing's options where candidates have to be lowered to be scored: at most chains x (steps + 1) new ones
for one batch. Chains go on from batch to batch, and what was lowered once is remembered."""


def create(choices: Choices, space: Space, rng: np.random.Generator) -> Explorer:
    """Make the explorer that was chosen, with its ε and λ where it has them."""
    match choices.explorer:
        case "random":
            return RandomExplorer(space, rng)
        case "grid":
            return GridExplorer(space)
        case "genetic":
            return GeneticExplorer(space, rng)
        case "tpe":
            from hbtvm.tuning.explorers.tpe import TpeExplorer  # which needs Optuna, an extra

            return TpeExplorer(space, rng)
        case "metaschedule":
            from hbtvm.tuning.explorers.metaschedule import (
                MetaScheduleExplorer,  # imports MetaSchedule: seconds
            )

            return MetaScheduleExplorer(space, rng)
    bounds = _LOWERED if choices.lowers else {}
    options = AnnealingOptions(epsilon=choices.epsilon, ratio=choices.diversity, **bounds)
    return AnnealingExplorer(space, rng, options)
