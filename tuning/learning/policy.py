"""When to fit a run's model again."""

from __future__ import annotations

FEWEST = 6  # measurements below which a model without a global one would learn noise
FEWEST_MORE = 2  # the same for a model that corrects a global one: its guess, and a random candidate
GROWTH = 20  # a fit is due after a twentieth more measurements: late batches add little, and fits cost more


class FittingPolicy:
    """Decides when another fit is due."""

    def __init__(self) -> None:
        self._fitted = 0

    def due(self, count: int, *, taught: bool) -> bool:
        """Whether to fit a model to `count` measurements; `taught`: it corrects a global model."""
        fewest = FEWEST_MORE if taught else FEWEST
        return count >= max(fewest, self._fitted + max(1, self._fitted // GROWTH))

    def fitted(self, count: int) -> None:
        """Note that a fit to this many measurements succeeded."""
        self._fitted = count
