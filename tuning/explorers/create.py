"""Explorers by name."""

from __future__ import annotations

import numpy as np

from hbtvm.schedules.space import Space
from hbtvm.tuning.choices import Choices
from hbtvm.tuning.explorers.annealing import AnnealingExplorer, AnnealingOptions
from hbtvm.tuning.explorers.base import Explorer
from hbtvm.tuning.explorers.comparisons import (
    GeneticExplorer,
    GridExplorer,
    MetaScheduleExplorer,
    TpeExplorer,
)
from hbtvm.tuning.explorers.random_search import RandomExplorer

_OTHERS = {
    "random": RandomExplorer,
    "grid": GridExplorer,
    "genetic": GeneticExplorer,
    "tpe": TpeExplorer,
    "metaschedule": MetaScheduleExplorer,
}

_LOWERED = {"chains": 32, "steps": 4, "scan": 32}
"""Annealing's options if scoring lowers candidates: at most chains x (steps + 1) new candidates per batch.
Chains continue from batch to batch, and lowered candidates are cached."""


def create(choices: Choices, space: Space, rng: np.random.Generator) -> Explorer:
    """Return the chosen explorer, with ε and λ if it has them."""
    if choices.explorer in _OTHERS:
        return _OTHERS[choices.explorer](space, rng)
    bounds = _LOWERED if choices.lowers else {}
    options = AnnealingOptions(epsilon=choices.epsilon, ratio=choices.diversity, **bounds)
    return AnnealingExplorer(space, rng, options)
