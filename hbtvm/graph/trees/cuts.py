"""Move thresholds from behind steps to in front of them, exactly.

`Chain` is the composition of a column's steps. A threshold behind it cuts the raw numbers in two, at a number
that `Chain.cuts` finds by bisection over the ordinals of floats, with the library's own steps. That is exact
for steps that are monotone with all their roundings, as a single rounded operation is. numpy's transcendental
functions need not be monotone in their last bits: for them, all numbers for which an error of `_ULPS` units
in the last place could decide are tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from hbtvm.graph.columns.curves import NormalQuantile, Power, Quantile
from hbtvm.graph.columns.evaluate import of_numbers
from hbtvm.graph.columns.steps import Arithmetic, Cast, Fill, Function, IsMissing, Step, missing_in
from hbtvm.graph.trees.ordinals import floats, last_true, ordinal, ordinals

_ROUNDED = (
    *("sqrt", "negative", "positive", "floor", "ceil", "rint", "trunc", "sign"),
    *("deg2rad", "rad2deg", "degrees", "radians"),
)
"""Functions that numpy rounds once, from the exact result or from a product."""

_ULPS = 8  # numpy's functions are off by at most 4 units in the last place

_TRIED = 1 << 21
"""Bound of the numbers to try for a column; beyond it, numpy computes the column."""


@dataclass(frozen=True)
class Cuts:
    """The cuts of raw numbers by U thresholds."""

    # Int64, shape (U,): the ordinal of the last number on the lower side, `Chain.low` - 1 to `Chain.high`
    ordinal: np.ndarray
    rising: bool  # whether the steps map the lower side to numbers at or below the thresholds


@dataclass(frozen=True)
class Chain:
    """Monotone steps on numbers of one type."""

    steps: tuple[Step, ...]  # the steps, then the cast to the type in which trees compare
    dtype: str  # type of the raw numbers
    # `low`, `high`: ordinals of the least and the greatest accepted raw number whose result is not NaN
    low: int
    high: int
    domain: tuple[float, float]  # numbers outside give NaN; infinite if none do
    at_nan: float  # the result for NaN
    constant: float | None = None  # the result for all numbers, behind `IsMissing`; else None

    def cuts(self, thresholds: np.ndarray) -> Cuts | None:
        """Return the cuts of the raw numbers by thresholds behind the steps.

        `thresholds`: float64, shape (U,), distinct.
        Returns None if a function is not monotone in its last bits at a threshold.
        """
        bound, never, rising = thresholds, np.zeros(len(thresholds), bool), True
        steps, dtypes = list[Step](), [self.dtype]
        for step in self.steps:
            to = of_numbers((step,), np.zeros(1, dtypes[-1])).dtype.name
            # Leave out steps that do not change numbers.
            if not isinstance(step, Fill) and not (isinstance(step, Cast) and to == dtypes[-1]):
                steps.append(step)
                dtypes.append(to)
        for first, last in reversed(_segments(steps)):
            cut = _Segment(tuple(steps[first:last]), dtypes[first], dtypes[last]).cut(bound, never)
            if cut is None:
                return None
            at, falls, low = cut
            never = at < low
            bound = floats(np.maximum(at, low), dtypes[first])
            rising ^= falls
        at = np.where(never, self.low - 1, np.clip(ordinals(bound), self.low - 1, self.high))
        return Cuts(at, rising)


def chain_of(steps: Sequence[Step], dtype: str, compare: str, infinite: bool) -> Chain | None:
    """Return the steps on a column of numbers as a chain; None if they are not monotone.

    `dtype`, `compare`: the type of the raw numbers, and the type in which trees compare the result.
    `infinite`: whether infinities are accepted.
    """
    steps = (*steps, Cast("float32") if compare == "float32" else Cast("float64"))
    edge = np.inf if infinite else float(np.finfo(dtype).max)
    ends = np.array([-edge, edge], dtype)
    at_nan = float(of_numbers(steps, np.array([np.nan], dtype))[0])
    for at, step in enumerate(steps):
        if isinstance(step, (Fill, IsMissing)):
            # A missing value must be missing in the rows.
            nan_is_missing = bool(missing_in(np.array([np.nan]), step.missing)[0])
            if not nan_is_missing or np.isnan(ends).any():
                return None
        if isinstance(step, IsMissing):
            low, high = ordinal(-edge, dtype), ordinal(edge, dtype)
            constant = float(of_numbers(steps[at:], ends[:1])[0])
            return Chain(steps, dtype, low, high, (-np.inf, np.inf), at_nan, constant)
        if not isinstance(step, Fill) and not (step.monotone and _regular(step, ends.dtype)):
            return None
        ends = step.apply(ends)
    accepted = _domain(steps, dtype, ordinal(-edge, dtype), ordinal(edge, dtype))
    if accepted is None:
        return None
    bounds = floats(np.array(accepted), dtype).astype(np.float64)
    domain = np.where(np.isnan(ends), bounds, (-np.inf, np.inf))
    return Chain(steps, dtype, *accepted, (float(domain[0]), float(domain[1])), at_nan)


def _regular(step: Step, dtype: np.dtype) -> bool:
    """Return whether a step is not arithmetic with a constant that makes NaN of numbers."""
    if not isinstance(step, Arithmetic):
        return True
    constant = dtype.type(step.constant) if step.cast else step.constant
    return bool(np.isfinite(constant)) and (constant != 0 or step.operation in ("subtract", "add"))


def _domain(steps: Sequence[Step], dtype: str, low: int, high: int) -> tuple[int, int] | None:
    """Return the range of ordinals whose result is not NaN; None if it is NaN at both ends."""

    def nan(x: np.ndarray) -> np.ndarray:
        result: np.ndarray = np.isnan(of_numbers(steps, x))
        return result

    at_low, at_high = nan(floats(np.array([low, high]), dtype)).tolist()
    if at_low and at_high:
        return None
    if at_low:
        return int(last_true(nan, low, high, 1, dtype)[0]) + 1, high
    if at_high:
        return low, int(last_true(lambda x: ~nan(x), low, high, 1, dtype)[0])
    return low, high


def _segments(steps: Sequence[Step]) -> list[tuple[int, int]]:
    """Return ranges of steps that are monotone together, and single functions that may not be."""
    bounds = {0, len(steps)}
    for at, step in enumerate(steps):
        if _doubtful(step):
            bounds |= {at, at + 1}
    ordered = sorted(bounds)
    return list(pairwise(ordered)) or [(0, 0)]


def _doubtful(step: Step) -> bool:
    if isinstance(step, Function):
        return step.name not in _ROUNDED
    return isinstance(step, Quantile | NormalQuantile | Power)


class _Segment:
    """Steps from one type to another, monotone but for the last bits of a function."""

    def __init__(self, steps: tuple[Step, ...], dtype: str, to: str) -> None:
        self._steps, self._dtype, self._to = steps, dtype, to
        # The domain is at least a half line, as the whole chain's would be empty otherwise.
        full = ordinal(-np.inf, dtype), ordinal(np.inf, dtype)
        self._low, self._high = _domain(steps, dtype, *full) or full
        ends = of_numbers(steps, floats(np.array([self._low, self._high]), dtype))
        self._falls = bool(ends[1] < ends[0])

    def cut(self, bound: np.ndarray, never: np.ndarray) -> tuple[np.ndarray, bool, int] | None:
        """Return (cut ordinals, falling, domain start).

        A result is on the lower side if it is at most `bound`, and not `never`.
        """
        at = self._last(bound, never)
        # -0.0 and 0.0 are equal: no threshold cuts between them.
        if self._low < 0 <= self._high and np.any(at == ordinal(-0.0, self._dtype)):
            return None
        if len(self._steps) == 1 and _doubtful(self._steps[0]) and not self._holds_around(at, bound, never):
            return None
        return at, self._falls, self._low

    def _lower(self, x: np.ndarray, bound: np.ndarray, never: np.ndarray) -> np.ndarray:
        result: np.ndarray = ((of_numbers(self._steps, x) <= bound) & ~never) ^ self._falls
        return result

    def _last(self, bound: np.ndarray, never: np.ndarray) -> np.ndarray:
        return last_true(
            lambda x: self._lower(x, bound, never), self._low, self._high, len(bound), self._dtype
        )

    def _holds_around(self, at: np.ndarray, bound: np.ndarray, never: np.ndarray) -> bool:
        """Return whether `at` is right for all numbers for which an error could decide."""
        edges = ordinal(-np.inf, self._to), ordinal(np.inf, self._to)
        # Round the bounds to the results' type.
        error = self._steps[0].error
        neighbors = [
            self._last(
                floats(
                    np.clip(ordinals(np.asarray(bound + sign * error, self._to)) + shift, *edges), self._to
                ),
                never,
            )
            for sign, shift in ((-1, -_ULPS), (1, _ULPS))
        ]
        first = np.maximum(np.minimum(*neighbors) - 1, self._low)
        counts = np.minimum(np.maximum(*neighbors) + 1, self._high) - first + 1
        # Counts that overflow are negative.
        if np.any(counts < 1) or float(np.sum(counts, dtype=np.float64)) > _TRIED:
            return False
        which = np.repeat(np.arange(len(at)), counts)
        tried = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts) + first[which]
        lower = self._lower(floats(tried, self._dtype), bound[which], never[which])
        return bool(np.array_equal(lower, tried <= at[which]))
