"""Uniform random search: the baseline and fallback of the other explorers."""

from __future__ import annotations

from collections.abc import Container, Mapping

import numpy as np

from hbtvm.schedules.space import Config, Space
from hbtvm.tuning.explorers.base import Point, Score

SMALL = 2**13  # largest space that is listed in full, in a fraction of a second

_DRAWN, _ROUNDS = 64, 100
"""Configurations per draw from a larger space, and most draws: a resumed run first repeats the earlier run's
draws."""


class RandomExplorer:
    """Draws new configurations uniformly, without replacement (an `Explorer`)."""

    def __init__(self, space: Space, rng: np.random.Generator) -> None:
        self._space = space
        self._rng = rng
        self._listed: tuple[list[Point], list[Config]] | None = None

    def propose(self, count: int, measured: Mapping[Point, float]) -> list[Config]:
        """Draw `count` unmeasured configurations."""
        return self.draw(count, measured)

    def draw(self, count: int, taken: Container[Point]) -> list[Config]:
        """Draw up to `count` configurations that are not taken."""
        if self._space.size <= SMALL:
            points, configs = self.listed()
            free = [i for i, point in enumerate(points) if point not in taken]
            chosen = self._rng.permutation(len(free))[:count]
            return [configs[free[i]] for i in chosen]
        new: dict[Point, Config] = {}
        for _ in range(_ROUNDS):
            for config in self._space.sample(self._rng, max(_DRAWN, count)):
                point = self._space.encode(config)
                if point not in taken and len(new) < count:
                    new[point] = config
            if len(new) >= count:
                break
        return list(new.values())

    def fill(
        self, batch: Mapping[Point, Config], count: int, measured: Mapping[Point, float]
    ) -> list[Config]:
        """Fill a batch up to `count` with random configurations."""
        return [*batch.values(), *self.draw(count - len(batch), {*measured, *batch})]

    def listed(self) -> tuple[list[Point], list[Config]]:
        """Return every valid configuration of a small space, in the space's order, cached."""
        if self._listed is None:
            configs = list(self._space)
            self._listed = [self._space.encode(config) for config in configs], configs
        return self._listed

    def update(self, score: Score | None) -> None:
        """Random search learns nothing."""
