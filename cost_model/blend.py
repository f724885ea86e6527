"""Two opinions at once: what trees and what a smooth function make of the same measurements.

Trees rank robustly however far apart times are, and learn across workloads; a smooth function
orders candidates beyond the best measured, and needs few measurements. Their errors differ, so their sum
ranks better than either (`python -m benchmarks.search` shows by how much).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from cost_model.base import CostModel, Scores, check, clean


class Blend:
    """The mean of several models' scores, each in units of its own spread (a `CostModel`).

    Parameters
    ----------
    members
        The models.
    spreads
        Standard deviations of their scores, until a fit finds them on its data; by default 1.
    """

    def __init__(self, members: Sequence[CostModel], spreads: Sequence[float] | None = None) -> None:
        self.members = tuple(members)
        self.spreads = tuple(spreads) if spreads is not None else (1.0,) * len(self.members)

    def fit(
        self,
        features: ArrayLike,
        costs: ArrayLike,
        groups: ArrayLike | None = None,
        margin: ArrayLike | None = None,
    ) -> None:
        """Fit each model (see `CostModel.fit`)."""
        table, times, labels, base = check(features, costs, groups, margin)
        for member in self.members:
            member.fit(table, times, labels, base)
        spreads = [float(np.std(member.predict(table))) if len(table) else 0.0 for member in self.members]
        # What scores all alike has no opinion, and no unit.
        self.spreads = tuple(spread if spread > 1e-9 else 1.0 for spread in spreads)

    def predict(self, features: ArrayLike) -> Scores:
        """Score candidates, higher is better (see `CostModel.predict`)."""
        table = clean(features)
        total = np.zeros(len(table), dtype=np.float32)
        for member, spread in zip(self.members, self.spreads, strict=True):
            total += member.predict(table) / np.float32(spread)
        mean: Scores = total / np.float32(len(self.members))
        return mean
