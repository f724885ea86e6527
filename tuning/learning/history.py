"""A run's measurements as arrays for cost models."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray


class History:
    """Features, costs and task indices of all measurements, in order."""

    def __init__(self) -> None:
        self._rows: list[NDArray[np.float32]] = []
        self._costs: list[float] = []
        self._tasks: list[int] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, task: int, table: NDArray[np.float32], costs: Sequence[float]) -> None:
        """Add a task's measurements: features (n, D) and seconds, infinite for failures."""
        self._rows.extend(table)
        self._costs.extend(costs)
        self._tasks.extend([task] * len(table))

    def arrays(self) -> tuple[NDArray[np.float32], NDArray[np.float64], NDArray[np.intp]]:
        """Return features (n, D), costs (n,) and task indices (n,), for n ≥ 1."""
        return np.stack(self._rows), np.array(self._costs), np.array(self._tasks, dtype=np.intp)

    def fastest(self, task: int) -> NDArray[np.float32] | None:
        """Return the features of a task's fastest candidate, (1, D), or None."""
        rows = [i for i, index in enumerate(self._tasks) if index == task]
        return self._rows[min(rows, key=self._costs.__getitem__)][None] if rows else None
