"""An ensemble of different cost models that are fitted to the same measurements.

Trees rank robustly whatever the range of times; a smooth function extrapolates. Trained on other workloads,
their mean ranks better than either (`python -m benchmarks.search` has figures).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hbtvm.cost_model.base import CostModel, Scores, check


class Blend:
    """The mean of several models' scores, each in units of its own spread (a `CostModel`).

    Parameters
    ----------
    members
        The models.
    """

    def __init__(self, members: Sequence[CostModel]) -> None:
        self._members = tuple(members)
        self._spreads = np.ones(len(self._members))

    def fit(
        self,
        features: ArrayLike,
        costs: ArrayLike,
        groups: ArrayLike | None = None,
        margin: ArrayLike | None = None,
    ) -> None:
        """Fit each model (see `CostModel.fit`)."""
        table, times, labels, base = check(features, costs, groups, margin)
        for member in self._members:
            member.fit(table, times, labels, base)
        spreads = np.array([np.std(member.predict(table)) if len(table) else 0.0 for member in self._members])
        # A model that scores all alike has no spread to divide by.
        self._spreads = np.where(spreads > 1e-9, spreads, 1.0)

    def predict(self, features: ArrayLike) -> Scores:
        """Score candidates, higher is better (see `CostModel.predict`)."""
        mean: Scores = self.member_scores(features).mean(axis=0)
        return mean

    def member_scores(self, features: ArrayLike) -> NDArray[np.float32]:
        """Each model's scores, in units of their spread over what it was fitted to, (models, n)."""
        scores = np.stack([member.predict(features) for member in self._members])
        return np.asarray(scores / self._spreads[:, None], dtype=np.float32)
