"""What every cost model offers to the search."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Prediction:
    """What a cost model says of candidates.

    Attributes
    ----------
    mean
        Log2 of each candidate's speed, relative to a zero that is the same for all candidates of a group:
        1 more is twice as fast. float64, (n,), finite.
    std
        Its standard deviation, in the same unit, (n,); zeros from a model that knows none.
    """

    mean: Vector
    std: Vector

    @classmethod
    def certain(cls, mean: ArrayLike) -> Prediction:
        """Of a model that does not know how sure it is."""
        values = np.asarray(mean, dtype=np.float64)
        return cls(values, np.zeros(len(values)))

    @property
    def unsure(self) -> bool:
        """Whether any standard deviation is known."""
        return bool(self.std.any())

    def plus(self, mean: ArrayLike) -> Prediction:
        """The same with more added to the mean, (n,)."""
        return Prediction(self.mean + np.asarray(mean), self.std)


class CostModel(ABC):
    """Learns candidates' speeds from measured ones."""

    @abstractmethod
    def fit(
        self,
        features: ArrayLike,
        costs: ArrayLike,
        groups: ArrayLike | None = None,
        margin: ArrayLike | None = None,
    ) -> None:
        """Learn anew from all the data: what an earlier fit was given counts no more.

        Parameters
        ----------
        features
            float32, (n, D).
        costs
            Seconds, (n,); infinite or NaN for a candidate that failed.
        groups
            Integer labels, (n,): costs are comparable only within one group, e.g. one task.
            ``None`` puts all in one.
        margin
            Log2 speeds that another model predicts, (n,), to which this model's are going to be added.

        Raises
        ------
        ValueError
            If the lengths disagree, or the features are no table.
        """

    @abstractmethod
    def predict(self, features: ArrayLike) -> Prediction:
        """Predict candidates' speeds; with zeros for means where there was nothing to learn from.

        Parameters
        ----------
        features
            float32, (n, D).
        """

    def mean(self, features: ArrayLike) -> Vector:
        """The means of `predict`, for those who need nothing else: some models are much faster at it."""
        return self.predict(features).mean

    def believing(self, features: ArrayLike) -> CostModel | None:
        """This model as if some more candidates had turned out as it predicts ("kriging believer").

        Means stay the same, and standard deviations near these candidates fall, so that the next of a batch
        can be one that tells something else (Ginsbourger et al., 2010).

        Parameters
        ----------
        features
            float32, (m, D).

        Returns
        -------
        None from a model that does not know which candidates tell of which.
        """
        return None


def check(
    features: ArrayLike, costs: ArrayLike, groups: ArrayLike | None, margin: ArrayLike | None
) -> tuple[NDArray[np.float32], Vector, NDArray[np.intp], Vector]:
    """Bring the arguments of `CostModel.fit` into one form.

    Returns
    -------
    tuple
        Features (n, D), costs (n,) with failures infinite, group numbers (n,) from 0 on, and
        margin (n,).

    Raises
    ------
    ValueError
        If the lengths disagree.
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
    """Log2 of one group's speeds, relative to their mean.

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
    found = np.full(len(times), np.nan)
    for group in np.unique(labels):
        own = labels == group
        speeds = relative_speeds(times[own])
        if speeds is not None:
            found[own] = speeds
    return found


def centred(values: Vector, labels: NDArray[np.intp]) -> Vector:
    """Values relative to their group's mean, (n,)."""
    sums = np.bincount(labels, values)
    counts = np.maximum(np.bincount(labels), 1)
    result: Vector = values - (sums / counts)[labels]
    return result


def slope(scores: Vector, times: Vector, labels: NDArray[np.intp], margin: Vector) -> float:
    """Log2 speeds for a unit of a model's scores, by least squares within groups; at least 0.

    What the margin predicts already is not the scores' to explain. Groups without a success say nothing;
    where scores do not vary it is 0.
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
    """Features as float32, (n, D), with NaN (to XGBoost: unknown) for what is not finite.

    Raises
    ------
    ValueError
        If they are not a table.
    """
    table = table_of(features)
    return np.where(np.isfinite(table), table, np.float32(np.nan))


def table_of(features: ArrayLike) -> NDArray[np.float32]:
    """Features as float32, (n, D), as they are.

    Raises
    ------
    ValueError
        If they are not a table.
    """
    table = np.asarray(features, dtype=np.float32)
    if table.ndim != 2:
        raise ValueError(f"features must have shape (n, D), not {table.shape}")
    return table
