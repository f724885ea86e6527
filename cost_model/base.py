"""What every cost model offers to the search."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

Scores = NDArray[np.float32]


@runtime_checkable
class CostModel(Protocol):
    """Learns to rank candidates by measured ones."""

    def fit(
        self,
        features: ArrayLike,
        costs: ArrayLike,
        groups: ArrayLike | None = None,
        margin: ArrayLike | None = None,
    ) -> None:
        """Learn anew from all the data (nothing is kept from an earlier fit).

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
            Scores of another model, (n,), to which this model's are going to be added.
        """
        ...

    def predict(self, features: ArrayLike) -> Scores:
        """Score candidates, higher is better; zeros where there was nothing to learn from.

        Parameters
        ----------
        features
            float32, (n, D).

        Returns
        -------
        numpy.ndarray
            float32, (n,), finite. Only their order means something.
        """
        ...


def check(
    features: ArrayLike, costs: ArrayLike, groups: ArrayLike | None, margin: ArrayLike | None
) -> tuple[NDArray[np.float32], NDArray[np.float64], NDArray[np.intp], NDArray[np.float64]]:
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


def relative_speeds(times: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Log2 of one group's speeds, relative to their mean; what models that regress learn.

    A failed candidate counts as twice as slow as the slowest success. None without a success.
    """
    finite = np.isfinite(times)
    if not finite.any():
        return None
    logs = np.log2(np.maximum(times, 1e-12))
    logs[~finite] = logs[finite].max() + 1
    speeds: NDArray[np.float64] = logs.mean() - logs
    return speeds


def speeds_by_group(times: NDArray[np.float64], labels: NDArray[np.intp]) -> NDArray[np.float64]:
    """`relative_speeds` of each group, (n,); NaN in a group without a success."""
    found = np.full(len(times), np.nan)
    for group in np.unique(labels):
        own = labels == group
        speeds = relative_speeds(times[own])
        if speeds is not None:
            found[own] = speeds
    return found


def clean(features: ArrayLike) -> NDArray[np.float32]:
    """Features as float32, (n, D), with NaN (to XGBoost: unknown) for what is not finite.

    Raises
    ------
    ValueError
        If they are not a table.
    """
    table = np.asarray(features, dtype=np.float32)
    if table.ndim != 2:
        raise ValueError(f"features must have shape (n, D), not {table.shape}")
    return np.where(np.isfinite(table), table, np.float32(np.nan))
