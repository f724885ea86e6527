"""`LinearOperand`: a linear model prepared for kernels that read rows of one type."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

import numpy as np

from hbtvm.graph.networks.network import Linear
from hbtvm.operators.products import LinearSum
from hbtvm.schedules.workload import LinearWorkload, Workload
from hbtvm.strategies.trees.forest import DType

PARALLEL_WORK = 100_000
"""Rows times weights and table entries from which threads may pay."""


@dataclass(frozen=True, eq=False)
class LinearOperand:
    """Weighted sums of K numbers and C codes for O outputs."""

    dtype: DType  # type of the input; sums are always in float64
    # The model without its base score. It fills missing numbers only if rows may have NaN.
    sums: LinearSum

    family = "linear"
    value_dtype: DType = "float64"
    missing = True

    @property
    def row_dtype(self) -> DType:
        """Type of the rows."""
        return self.dtype

    @property
    def n_features(self) -> int:
        """Width of a row."""
        return self.sums.x.width

    @property
    def n_outputs(self) -> int:
        """Scores of a row, O."""
        return self.sums.width

    @cached_property
    def memo(self) -> dict[str, Any]:
        """Cache of strategies' results that no configuration changes."""
        return {}

    def workload(self, rows: int, threads: int = 1) -> Workload:
        """See `hbtvm.strategies.workload_of`; the result is a `LinearWorkload`."""
        sums, facts = self.sums, self.sums.attributes()
        numbers, codes = len(sums.feature), len(sums.sizes)
        work = rows * (numbers + codes) * self.n_outputs
        linear: LinearWorkload = {
            "family": "linear",
            "rows": rows,
            "threads": threads if work >= PARALLEL_WORK else 1,
            "features": self.n_features,
            "numbers": numbers,
            "codes": codes,
            "entries": len(sums.entries),
            "outputs": self.n_outputs,
            "in_order": facts["in_order"],
            "shifts": facts["shifts"],
            "fills_missing": facts["fills_missing"],
            "dtype": self.dtype,
        }
        return cast(Workload, linear)


def make_linear(linear: Linear, dtype: DType, nan: bool = True) -> LinearOperand:
    """Return a linear model's operand; numbers without a weight are left out if at least half have none.

    `dtype`: type of the rows.
    `nan`: whether rows may have NaN among their numbers.
    """
    sums = linear.sums
    used = np.any(sums.weight != 0, axis=1) | (nan & np.any(sums.missing != 0, axis=1))
    # Drop unused columns of sparse models only: reading columns in order is faster.
    if 2 * np.count_nonzero(used) <= len(used):
        kept = {name: getattr(sums, name)[used] for name in ("feature", "shift", "weight", "missing")}
        sums = replace(sums, **kept)
    return LinearOperand(dtype, replace(sums, fills_missing=nan and len(sums.feature) > 0))
