"""When a run's model is fitted anew."""

from __future__ import annotations

FEWEST = 6
"""Measurements of a run below which a model by itself would only learn noise."""

FEWEST_MORE = 2
"""The same for a model that corrects a global one: a guess of its, and what it is held against."""

GROWTH = 20
"""Late in a run a batch adds little to what is known, but fitting costs the more: a twentieth more
measurements than at the last fit are waited for."""


class FittingPolicy:
    """Says when there is enough news for another fit."""

    def __init__(self) -> None:
        self._fitted = 0

    def due(self, count: int, *, taught: bool) -> bool:
        """Whether to fit a model to this many measurements; `taught` says that it corrects a global one."""
        fewest = FEWEST_MORE if taught else FEWEST
        return count >= max(fewest, self._fitted + max(1, self._fitted // GROWTH))

    def fitted(self, count: int) -> None:
        """Note that a fit to this many measurements succeeded."""
        self._fitted = count
