"""A genetic algorithm: the black-box search that AutoTVM holds itself against (figure 4)."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from hbtvm.schedules.space import Config, Space
from hbtvm.tuning.explorers.base import Point, Score
from hbtvm.tuning.explorers.random_search import RandomExplorer


@dataclass(frozen=True)
class GeneticOptions:
    """How children come about.

    Attributes
    ----------
    founders
        Configurations drawn at random before there are any children.
    elite
        Most parents: the best measured.
    mutation
        Probability with which each of a child's choices is drawn anew.
    tries
        Children for each place in a batch, after which it is filled at random.
    """

    founders: int = 16
    elite: int = 16
    mutation: float = 0.1
    tries: int = 20


class GeneticExplorer:
    """Crosses and mutates the best measured configurations (an `Explorer`).

    Parents are drawn by rank, the best most often; a child takes each choice from either
    parent (uniform crossover), and some are drawn anew.
    """

    def __init__(self, space: Space, rng: np.random.Generator, options: GeneticOptions | None = None) -> None:
        self._space = space
        self._rng = rng
        self._options = options or GeneticOptions()
        self._random = RandomExplorer(space, rng)

    def propose(self, count: int, measured: Mapping[Point, float]) -> list[Config]:
        """Make `count` children that were not measured."""
        working = [(cost, point) for point, cost in measured.items() if np.isfinite(cost)]
        founders = min(count, max(0, self._options.founders - len(measured)))
        batch: dict[Point, Config] = {}
        if len(working) > 1:
            parents = [point for _, point in heapq.nsmallest(self._options.elite, working)]
            for _ in range(self._options.tries * (count - founders)):
                if len(batch) == count - founders:
                    break
                child = self._space.repair(self._child(parents), self._rng)
                if child is None:
                    continue
                point = self._space.encode(child)
                if point not in measured:
                    batch[point] = child
        return self._random.fill(batch, count, measured)

    def _child(self, parents: list[Point]) -> Config:
        weights = np.arange(len(parents), 0, -1, dtype=float)
        one, other = self._rng.choice(len(parents), size=2, replace=False, p=weights / weights.sum())
        knobs = self._space.knobs
        first = self._rng.random(len(knobs)) < 0.5
        genes = np.where(first, parents[one], parents[other])
        for i in np.flatnonzero(self._rng.random(len(knobs)) < self._options.mutation):
            genes[i] = self._rng.integers(len(knobs[i].choices))
        return self._space.decode([int(gene) for gene in genes])

    def update(self, score: Score | None) -> None:
        """A genetic algorithm has no model."""
