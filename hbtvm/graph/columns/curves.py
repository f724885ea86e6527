"""Steps along a curve: bins, quantiles and powers of single numbers.

If scipy is installed, as wherever models are compiled, its functions compute the steps, so that trees behind
them decide as the library does. Elsewhere results may differ in their last bits.
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
    """The number of edges at most a number (`KBinsDiscretizer`); NaN stays."""

    edges: Numbers  # float64, shape (E,), ascending, without the ends of the whole range
    monotone = True

    def validate(self) -> None:
        """Raise `ValueError` if the edges do not ascend."""
        _check_rising(self.edges)

    def apply(self, x: np.ndarray) -> np.ndarray:
        result = np.searchsorted(self.edges, x, side="right").astype(x.dtype)
        result[np.isnan(x)] = np.nan
        return result


@dataclass(frozen=True, eq=False)
class Quantile(Step):
    """The share of training values below a number (`QuantileTransformer`); NaN stays.

    It is the mean of two interpolations, which take the first and the last of equal quantiles.
    """

    # `quantiles`, `references`: float64, shape (Q,): ascending training values, and their shares
    quantiles: Numbers
    references: Numbers
    # Numbers below the first quantile plus this get 0, numbers above the last minus this 1. If it is 0,
    # numbers equal to the first and the last do.
    margin: float = 0.0
    monotone = True
    error = 1e-15

    def validate(self) -> None:
        """Raise `ValueError` if the numbers do not ascend, or quantiles and shares differ in number."""
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
"""scikit-learn's bounds of quantiles of the normal distribution, a little beyond the quantile of 1e-7."""


@dataclass(frozen=True, eq=False)
class NormalQuantile(Step):
    """The number below which a normal distribution has a share; NaN stays."""

    monotone = True

    def apply(self, x: np.ndarray) -> np.ndarray:
        special = scipy_special()
        with np.errstate(all="ignore"):
            values = normal_quantile(x) if special is None else special.ndtri(x)
        low, high = x.dtype.type(LEAST_NORMAL), x.dtype.type(MOST_NORMAL)
        result: np.ndarray = values.astype(x.dtype).clip(low, high)
        return result


@dataclass(frozen=True, eq=False)
class Power(Step):
    """A power that makes numbers more like a normal distribution's (`PowerTransformer`); NaN stays."""

    # ``"box-cox"`` returns NaN for numbers below 0, which scikit-learn refuses like 0 itself
    method: Literal["yeo-johnson", "box-cox"]
    exponent: float  # the power, lambda
    narrow: bool = False  # whether the exponent is float32, and the function in float32 for float32 values
    monotone = True

    def apply(self, x: np.ndarray) -> np.ndarray:
        power = np.float32(self.exponent) if self.narrow else np.float64(self.exponent)
        with np.errstate(all="ignore"):
            values = _box_cox(x, power) if self.method == "box-cox" else _yeo_johnson(x, power)
            result: np.ndarray = values.astype(x.dtype)
        return result


def _check_rising(values: np.ndarray) -> None:
    if not np.all(values[1:] >= values[:-1]):
        raise ValueError(f"ascending numbers are {values.tolist()!r:.100}")


def bends(column: Column) -> bool:
    """Return whether a column has a step of this module: linear models can't move it into their weights."""
    return any(isinstance(step, Bins | Quantile | NormalQuantile | Power) for step in column.steps)


BOX_COX_ZERO = 1e-19  # scipy takes exponents below this for 0


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
    """Return ``((1 + |x|) ** power - 1) / power`` as scipy does, with exponent 2 - power below 0."""
    out = np.full(x.shape, np.nan, np.result_type(x.dtype, power.dtype))
    eps = np.finfo(out.dtype).eps
    at_least, below = x >= 0, x < 0
    logs = np.log1p(x[at_least])
    out[at_least] = logs if abs(power) < eps else np.expm1(power * logs) / power
    other, logs = 2 - power, np.log1p(-x[below])
    out[below] = -np.expm1(other * logs) / other if abs(power - 2) > eps else -logs
    return out


def scipy_special() -> Any:
    """Return scipy's module of special functions; None if it is not installed."""
    try:
        return importlib.import_module("scipy.special")
    except ImportError:
        return None
