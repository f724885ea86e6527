"""Grid search: one configuration after another, in the space's order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from hbtvm.schedules.space import Config, Space
from hbtvm.tuning.explorers.base import Point, Score


class GridExplorer:
    """Walks through a space in order, the last knob fastest (an `Explorer`)."""

    def __init__(self, space: Space) -> None:
        self._space = space
        self._rest: Iterator[Config] = iter(space)

    def propose(self, count: int, measured: Mapping[Point, float]) -> list[Config]:
        """Take the next `count` configurations that were not measured."""
        found: list[Config] = []
        while len(found) < count:
            config = next(self._rest, None)
            if config is None:
                break
            if self._space.encode(config) not in measured:
                found.append(config)
        return found

    def update(self, score: Score | None) -> None:
        """Grid search learns nothing."""
