"""Steps that follow a curve: bins, quantiles and powers of single numbers.

Where scipy is installed, as it is wherever models are compiled, its functions are taken: what a tree behind a
step decides then is decided as the library does. Elsewhere results may differ in their last bits.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from hbtvm.codec import Numbers
from hbtvm.graph.columns.steps import Step
from hbtvm.graph.columns.table import Column
from hbtvm.operators.normal import normal_quantile


@dataclass(frozen=True, eq=False)
class Bins(Step):
    """How many of the edges are at most a number (`KBinsDiscretizer`); NaN stays."""

    edges: Numbers  # float64, shape (E,), ascending; the ends of all bins are not among them
    monotone = True

    def validate(self) -> None:
        """Refuse edges that do not ascend."""
        _check_rising(self.edges)

    def apply(self, x: np.ndarray) -> np.ndarray:
        result = np.searchsorted(self.edges, x, side="right").astype(x.dtype)
        result[np.isnan(x)] = np.nan
        return result


@dataclass(frozen=True, eq=False)
class Quantile(Step):
    """The share of training below a number (`QuantileTransformer`); NaN stays.

    The mean of two interpolations, one of which takes the first and one the last of equal quantiles.
    """

    # `quantiles`, `references`: float64, shape (Q,): ascending numbers of training, and the shares that go
    # with them
    quantiles: Numbers
    references: Numbers
    # Numbers below the first quantile or nearer to it than this get 0, those near the last or above it 1. If
    # it is 0, numbers equal to them do.
    margin: float = 0.0
    monotone = True
    error = 1e-15

    def validate(self) -> None:
        """Refuse numbers that do not ascend, or of which some have no share."""
        _check_rising(self.quantiles)
        _check_rising(self.references)
        if not 0 < len(self.quantiles) == len(self.references):
            raise ValueError(f"{len(self.quantiles)} quantiles have {len(self.references)} shares")

    def apply(self, x: np.ndarray) -> np.ndarray:
        at, share = self.quantiles, self.references
        with np.errstate(all="ignore"):
            if self.margin:
                low, high = x - self.margin < at[0], x + self.margin > at[-1]
            else:
                low, high = x == at[0], x == at[-1]
            result: np.ndarray = 0.5 * (np.interp(x, at, share) - np.interp(-x, -at[::-1], -share[::-1]))
        result = result.astype(x.dtype)
        result[high] = 1.0
        result[low] = 0.0
        return result

    @property
    def ties(self) -> bool:
        """Whether some quantiles are equal."""
        return bool(np.any(self.quantiles[1:] <= self.quantiles[:-1]))


LEAST_NORMAL, MOST_NORMAL = -5.199337582605575, 5.19933758270342
"""Between these scikit-learn keeps quantiles of the normal distribution: a little beyond that of 1e-7."""


@dataclass(frozen=True, eq=False)
class NormalQuantile(Step):
    """The number below which a normal distribution has a share; NaN stays."""

    monotone = True

    def apply(self, x: np.ndarray) -> np.ndarray:
        special = scipy_special()
        with np.errstate(all="ignore"):
            found = normal_quantile(x) if special is None else special.ndtri(x)
        result: np.ndarray = found.astype(x.dtype).clip(x.dtype.type(LEAST_NORMAL), x.dtype.type(MOST_NORMAL))
        return result


@dataclass(frozen=True, eq=False)
class Power(Step):
    """A power that makes numbers more like a normal distribution's (`PowerTransformer`); NaN stays."""

    # Of these, ``"box-cox"`` makes NaN of what is below 0, which scikit-learn refuses like 0 itself
    method: Literal["yeo-johnson", "box-cox"]
    exponent: float  # the power, lambda
    narrow: bool = False  # whether it is a float32 number, and the function in float32 for such values
    monotone = True

    def apply(self, x: np.ndarray) -> np.ndarray:
        power = np.float32(self.exponent) if self.narrow else np.float64(self.exponent)
        with np.errstate(all="ignore"):
            found = _box_cox(x, power) if self.method == "box-cox" else _yeo_johnson(x, power)
            result: np.ndarray = found.astype(x.dtype)
        return result


def _check_rising(values: np.ndarray) -> None:
    if not np.all(values[1:] >= values[:-1]):
        raise ValueError(f"ascending numbers are {values.tolist()!r:.100}")


def bends(column: Column) -> bool:
    """Whether a column has such a step: linear models can't move it into their weights."""
    return any(isinstance(step, Bins | Quantile | NormalQuantile | Power) for step in column.steps)


BOX_COX_ZERO = 1e-19  # an exponent up to this is 0 to scipy


def _box_cox(x: np.ndarray, power: Any) -> np.ndarray:
    special = scipy_special()
    result: np.ndarray
    if special is not None:
        result = special.boxcox(x, power)
    elif abs(power) < BOX_COX_ZERO:
        result = np.log(x)
    else:
        result = np.expm1(power * np.log(x)) / power
    return result


def _yeo_johnson(x: np.ndarray, power: Any) -> np.ndarray:
    """As scipy computes it: the powers of ``1 + |x|`` less 1, of numbers below 0 by another exponent."""
    out = np.full(x.shape, np.nan, np.result_type(x.dtype, power.dtype))
    eps = np.finfo(out.dtype).eps
    at_least, below = x >= 0, x < 0
    logs = np.log1p(x[at_least])
    out[at_least] = logs if abs(power) < eps else np.expm1(power * logs) / power
    other, logs = 2 - power, np.log1p(-x[below])
    out[below] = -np.expm1(other * logs) / other if abs(power - 2) > eps else -logs
    return out


def scipy_special() -> Any:
    """scipy's special functions; None where it is not installed."""
    try:
        return importlib.import_module("scipy.special")
    except ImportError:
        return None
