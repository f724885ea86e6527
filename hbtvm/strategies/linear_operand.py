"""`LinearOperand`: a linear model prepared for kernels, its tables of codes laid out in one array."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np

from hbtvm.graph.linear import Linear
from hbtvm.schedules.workload import LinearWorkload, Workload
from hbtvm.strategies.forest import DType

PARALLEL_WORK = 100_000
"""Rows times weights and table entries read from which handing work to a thread may pay."""


@dataclass(frozen=True, eq=False)
class LinearOperand:
    """Weighted sums of K numbers and C codes for O outputs; see `hbtvm.graph.linear.Linear`.

    Attributes
    ----------
    dtype
        Type of the input. Sums are in float64 all the same.
    n_features
        Width of an input row.
    feature
        int32, shape (K,): the column of each number.
    shift
        float64, shape (K,).
    weight
        float64, shape (K, O).
    filled
        float64, shape (K, O): what NaN adds. None if no row has NaN (then NaN would make NaN).
    code_feature
        int32, shape (C,): the column of each code.
    code_first
        int32, shape (C,): where each code's table begins in `entries`.
    code_last
        `dtype`, shape (C,): the largest code of each.
    entries
        float64, shape (E, O): all tables, one below the other.
    """

    dtype: DType
    n_features: int
    feature: np.ndarray
    shift: np.ndarray
    weight: np.ndarray
    filled: np.ndarray | None
    code_feature: np.ndarray
    code_first: np.ndarray
    code_last: np.ndarray
    entries: np.ndarray

    family = "linear"
    value_dtype: DType = "float64"
    missing = True

    @property
    def row_dtype(self) -> DType:
        """Type of the rows."""
        return self.dtype

    @property
    def n_outputs(self) -> int:
        """Scores of a row, O."""
        return int(self.weight.shape[1])

    @property
    def in_order(self) -> bool:
        """Whether number k is column k."""
        return bool(np.array_equal(self.feature, np.arange(len(self.feature))))

    @cached_property
    def memo(self) -> dict[str, Any]:
        """Cache of what strategies compute from this operand, the same for all configurations."""
        return {}

    def workload(self, rows: int, threads: int = 1) -> Workload:
        """See `hbtvm.strategies.workload_of`; the result is a `LinearWorkload`."""
        numbers, codes = len(self.feature), len(self.code_feature)
        work = rows * (numbers + codes) * self.n_outputs
        own: LinearWorkload = {
            "family": "linear",
            "rows": rows,
            "threads": threads if work >= PARALLEL_WORK else 1,
            "features": self.n_features,
            "numbers": numbers,
            "codes": codes,
            "entries": len(self.entries),
            "outputs": self.n_outputs,
            "in_order": self.in_order,
            "shifts": bool(self.shift.any()),
            "fills_missing": self.filled is not None,
            "dtype": self.dtype,
        }
        # Strategies are told by the family which of the two it is.
        return cast(Workload, own)


def make_linear(linear: Linear, dtype: DType, nan: bool = True) -> LinearOperand:
    """Return a linear model's operand; numbers without a weight are left out if at least half have none.

    Parameters
    ----------
    dtype
        Type of the rows.
    nan
        Whether rows may have NaN among their numbers.
    """
    sizes = [len(table) for table in linear.tables]
    outputs = linear.n_outputs
    feature, weight = linear.feature.astype(np.int32), linear.weight.astype(np.float64).reshape(-1, outputs)
    shift, filled = linear.shift.astype(np.float64), linear.missing.astype(np.float64).reshape(-1, outputs)
    used = np.any(weight != 0, axis=1) | (nan & np.any(filled != 0, axis=1))
    # Few weights of a sparse model: the others' columns are not read. Else columns in order are read faster.
    if 2 * np.count_nonzero(used) <= len(used):
        feature, weight, shift, filled = feature[used], weight[used], shift[used], filled[used]
    return LinearOperand(
        dtype=dtype,
        n_features=linear.n_features,
        feature=feature,
        shift=shift,
        weight=weight,
        filled=filled if nan and len(feature) else None,
        code_feature=linear.code_feature.astype(np.int32),
        code_first=np.cumsum([0, *sizes])[:-1].astype(np.int32),
        code_last=np.array([size - 1 for size in sizes], dtype),
        entries=np.concatenate([np.zeros((0, outputs)), *linear.tables]),
    )
