"""The interface of cost models."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Prediction:
    """Predicted speeds of candidates."""

    # Log2 of each candidate's speed, relative to a zero that all candidates of a group share: 1 more is twice
    # as fast. float64, (n,), finite.
    mean: Vector
    std: Vector  # its standard deviation, in the same unit, (n,); zeros from a model without uncertainty

    @classmethod
    def certain(cls, mean: ArrayLike) -> Prediction:
        """Return a prediction without uncertainty."""
        values = np.asarray(mean, dtype=np.float64)
        return cls(values, np.zeros(len(values)))

    @property
    def unsure(self) -> bool:
        """Whether any standard deviation is known."""
        return bool(self.std.any())

    def plus(self, mean: ArrayLike) -> Prediction:
        """Return this prediction with another mean, (n,), added."""
        return Prediction(self.mean + np.asarray(mean), self.std)


class CostModel(ABC):
    """Predicts candidates' speeds from measured candidates."""

    @abstractmethod
    def fit(
        self,
        features: ArrayLike,
        costs: ArrayLike,
        groups: ArrayLike | None = None,
        margin: ArrayLike | None = None,
    ) -> None:
        """Fit the model to all of this data; an earlier fit is forgotten.

        `features`: float32, (n, D).
        `costs`: seconds, (n,); infinite or NaN for a failed candidate.
        `groups`: integer labels, (n,): costs are comparable only within one group, e.g. one task. ``None``
            puts all in one group.
        `margin`: log2 speeds predicted by another model, (n,), to which this model's predictions will be
            added.
        Raises `ValueError` if the lengths disagree, or the features are not a table.
        """

    @abstractmethod
    def predict(self, features: ArrayLike) -> Prediction:
        """Predict candidates' speeds; means are zero if there was nothing to learn from.

        `features`: float32, (n, D).
        """

    def mean(self, features: ArrayLike) -> Vector:
        """Return the means of `predict`, which some models compute much faster."""
        return self.predict(features).mean

    def believing(self, features: ArrayLike) -> CostModel | None:
        """Return this model as if further candidates had turned out as it predicts ("kriging believer").

        Means stay the same. Standard deviations near these candidates fall, so that a batch selects
        candidates that add information (Ginsbourger et al., 2010).

        `features`: float32, (m, D).
        """
        return None


def check(
    features: ArrayLike, costs: ArrayLike, groups: ArrayLike | None, margin: ArrayLike | None
) -> tuple[NDArray[np.float32], Vector, NDArray[np.intp], Vector]:
    """Normalise the arguments of `CostModel.fit`.

    Returns features (n, D), costs (n,) with failures infinite, group numbers (n,) from 0 on, and margin (n,).
    Raises `ValueError` if the lengths disagree.
    """
    table = clean(features)
    times = np.array(costs, dtype=np.float64)
    times[np.isnan(times)] = np.inf
    labels = np.zeros(len(table), dtype=np.intp) if groups is None else np.asarray(groups)
    base = np.zeros(len(table)) if margin is None else np.asarray(margin, dtype=np.float64)
    if not times.shape == labels.shape == base.shape == (len(table),):
        raise ValueError(
            f"features have {len(table)} rows, costs shape {times.shape}, "
            f"groups {labels.shape}, margin {base.shape}"
        )
    return table, times, np.unique(labels, return_inverse=True)[1], base


def relative_speeds(times: Vector) -> Vector | None:
    """Return log2 of one group's speeds, relative to their mean.

    A failed candidate counts as twice as slow as the slowest success. None without a success.
    """
    finite = np.isfinite(times)
    if not finite.any():
        return None
    logs = np.log2(np.maximum(times, 1e-12))
    logs[~finite] = logs[finite].max() + 1
    speeds: Vector = logs.mean() - logs
    return speeds


def speeds_by_group(times: Vector, labels: NDArray[np.intp]) -> Vector:
    """`relative_speeds` of each group, (n,); NaN in a group without a success."""
    result = np.full(len(times), np.nan)
    for group in np.unique(labels):
        members = labels == group
        speeds = relative_speeds(times[members])
        if speeds is not None:
            result[members] = speeds
    return result


def centred(values: Vector, labels: NDArray[np.intp]) -> Vector:
    """Return values relative to their group's mean, (n,)."""
    sums = np.bincount(labels, values)
    counts = np.maximum(np.bincount(labels), 1)
    result: Vector = values - (sums / counts)[labels]
    return result


def slope(scores: Vector, times: Vector, labels: NDArray[np.intp], margin: Vector) -> float:
    """Return log2 speeds per unit of a model's scores, by least squares within groups; at least 0.

    The scores explain only what the margin does not. Groups without a success are ignored. The slope is 0 if
    scores do not vary.
    """
    goal = speeds_by_group(times, labels)
    known = np.isfinite(goal)
    if not known.any():
        return 0.0
    labels = np.unique(labels[known], return_inverse=True)[1]
    spread = centred(scores[known], labels)
    left = goal[known] - centred(margin[known], labels)
    size = float(spread @ spread)
    return max(0.0, float(spread @ left) / size) if size > 1e-12 else 0.0


def clean(features: ArrayLike) -> NDArray[np.float32]:
    """Return features as float32, (n, D), with NaN (to XGBoost: unknown) for non-finite values.

    Raises `ValueError` if they are not a table.
    """
    table = table_of(features)
    return np.where(np.isfinite(table), table, np.float32(np.nan))


def table_of(features: ArrayLike) -> NDArray[np.float32]:
    """Return features as float32, (n, D), unchanged.

    Raises `ValueError` if they are not a table.
    """
    table = np.asarray(features, dtype=np.float32)
    if table.ndim != 2:
        raise ValueError(f"features must have shape (n, D), not {table.shape}")
    return table
