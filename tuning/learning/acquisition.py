"""Score one task's candidates with a fitted cost model, or pick a batch of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from hbtvm.cost_model.acquisition import merit
from hbtvm.cost_model.base import CostModel
from hbtvm.schedules.space import Config

Features = Callable[[Sequence[Config]], NDArray[np.float32]]


class AcquisitionScore:
    """Acquisition values of configurations (a `hbtvm.tuning.explorers.base.BatchScore`).

    `model`: a fitted model.
    `acquisition`: ``"mean"``, ``"ucb"`` or ``"ei"``.
    `features`: encodes configurations.
    `fastest`: features of the fastest candidate measured, (1, D), or None.
    `fail`: receives the model's errors, which are never raised.
    """

    def __init__(
        self,
        model: CostModel,
        acquisition: str,
        features: Features,
        fastest: NDArray[np.float32] | None,
        fail: Callable[[Exception], None],
    ) -> None:
        self._model = model
        self._acquisition = acquisition
        self._features = features
        self._fastest = fastest
        self._fail = fail
        self._known: float | None = None

    def __call__(self, configs: list[Config]) -> np.ndarray:
        """Return the acquisition values, (n,); zeros if the model fails."""
        try:
            return merit(self._acquisition, self._model.predict(self._features(configs)), self._best)
        except Exception as error:
            self._fail(error)
            return np.zeros(len(configs))

    def pick(self, configs: list[Config], count: int) -> list[int] | None:
        """Pick a batch greedily: each candidate is the best if the earlier ones turn out as predicted.

        Returns indices; None for the acquisition ``"mean"``, and for models that cannot condition on
        predictions.
        """
        if self._acquisition == "mean":
            return None
        try:
            table = self._features(configs)
            model, best = self._model, self._best
            chosen: list[int] = []
            while len(chosen) < min(count, len(configs)):
                if chosen:
                    believing = model.believing(table[chosen[-1:]])
                    if believing is None:
                        return None
                    model = believing
                prediction = model.predict(table)
                merits = merit(self._acquisition, prediction, best).copy()
                merits[chosen] = -np.inf
                chosen.append(int(np.argmax(merits)))
                best = max(best, float(prediction.mean[chosen[-1]]))
            return chosen
        except Exception as error:
            self._fail(error)
            return None

    def gain(self, configs: list[Config], behind: float) -> float | None:
        """Return the improvement that a batch is expected to bring, in log2 of the time.

        Improvements count from `behind` above the fastest candidate measured, in log2 of speed. Each
        candidate is conditioned on the earlier ones turning out as predicted. None without uncertainty, or if
        the model fails.
        """
        if self._acquisition == "mean" or self._fastest is None:
            return None
        try:
            table = self._features(configs)
            model, best, total = self._model, self._best + behind, 0.0
            for row in range(len(configs)):
                prediction = model.predict(table[row : row + 1])
                if not prediction.unsure:
                    return None
                total += float(np.exp(merit("ei", prediction, best)[0]))
                best = max(best, float(prediction.mean[0]))
                believing = model.believing(table[row : row + 1])
                if believing is None:
                    return None
                model = believing
            return total
        except Exception as error:
            self._fail(error)
            return None

    @property
    def _best(self) -> float:
        """The model's prediction for the fastest candidate; 0 for ``"mean"``."""
        if self._acquisition == "mean" or self._fastest is None:
            return 0.0
        if self._known is None:
            self._known = float(self._model.predict(self._fastest).mean[0])
        return self._known
