"""A loaded kernel, checked before it is timed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np


class CheckedKernel:
    """A loaded kernel with rows to run on.

    `scores`: returns an operand's sums of rows: float64 (N, O).
    `rows`, `checked`, `expected`, `tolerance`: rows to time; rows to check, their scores, and the absolute
        tolerance.
    `clock`: returns the seconds of a number of runs on rows; by default, it times calls of `scores`, the
        Python call included.
    `poison`: turns filling the scores with NaN before each call on and off: the memory may hold the correct
        scores of an earlier candidate.
    """

    def __init__(
        self,
        scores: Callable[[np.ndarray], np.ndarray],
        rows: np.ndarray,
        checked: np.ndarray,
        expected: np.ndarray,
        tolerance: float,
        clock: Callable[[np.ndarray, int], float] | None = None,
        poison: Callable[[bool], Any] = lambda on: None,
    ) -> None:
        self._poison = poison
        self._scores, self._rows, self._clock = scores, rows, clock
        self._checked, self._expected, self._tolerance = checked, expected, tolerance

    def check(self) -> str | None:
        """Compare scores with the reference; return None or a sentence on the difference."""
        self._poison(True)
        try:
            return self._difference()
        finally:
            self._poison(False)

    def _difference(self) -> str | None:
        # All rows at once, then the batch size: the code paths may differ.
        for rows in (self._checked, self._checked[: len(self._rows)]):
            scores, expected = self._scores(rows), self._expected[: len(rows)]
            with np.errstate(invalid="ignore"):
                off = np.abs(scores - expected)
            # Equal infinities and NaN differ by NaN.
            off[(scores == expected) | (np.isnan(scores) & np.isnan(expected))] = 0
            # A NaN fails.
            differs = ~(off <= self._tolerance)
            if differs.any():
                worst = float(np.nanmax(off, initial=0))
                return f"{int(differs.any(axis=1).sum())} of {len(rows)} rows differ, by up to {worst:.3g}"
        return None

    def run(self, number: int) -> float:
        """Return the seconds of `number` calls on the batch."""
        if self._clock is not None:
            return self._clock(self._rows, number)
        run, rows = self._scores, self._rows
        start = time.perf_counter()
        for _ in range(number):
            run(rows)
        return time.perf_counter() - start
