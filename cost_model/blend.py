"""Several models' opinions of the same candidates, learned from the same measurements.

Trees rank robustly however far apart times are, a smooth function carries on beyond what was measured:
of other workloads each knows something that the other does not (`python -m benchmarks.search` shows
what that is worth).
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
        # What scores all alike has no opinion, and no unit.
        self._spreads = np.where(spreads > 1e-9, spreads, 1.0)

    def predict(self, features: ArrayLike) -> Scores:
        """Score candidates, higher is better (see `CostModel.predict`)."""
        mean: Scores = self.opinions(features).mean(axis=0)
        return mean

    def opinions(self, features: ArrayLike) -> NDArray[np.float32]:
        """Each model's scores, in units of their spread over what it was fitted to, (models, n)."""
        scores = np.stack([member.predict(features) for member in self._members])
        return np.asarray(scores / self._spreads[:, None], dtype=np.float32)
