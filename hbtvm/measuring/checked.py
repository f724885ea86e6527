"""A loaded kernel that is checked before it is timed."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np


class CheckedKernel:
    """A loaded kernel with rows to run on.

    Parameters
    ----------
    scores
        Sums trees' values, or what else an operand adds up: rows in, float64 (N, O) out.
    rows, checked, expected, tolerance
        Rows to time; rows to check, their scores, and by how much they may be off.
    clock
        Seconds that a number of runs on some rows take; by default, those of calling `scores`,
        the Python call included.
    poison
        Told before a check to set memory for scores to NaN at each call, and afterwards to stop it: a worker
        checks many candidates on the same rows, and memory may hold the right scores of an earlier one.
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
        """Compare scores with the reference's; return what differs in a sentence, or None."""
        self._poison(True)
        try:
            return self._difference()
        finally:
            self._poison(False)

    def _difference(self) -> str | None:
        # Once in one call, once in the batch's own size: the two may take different code paths.
        for rows in (self._checked, self._checked[: len(self._rows)]):
            scores, expected = self._scores(rows), self._expected[: len(rows)]
            with np.errstate(invalid="ignore"):
                off = np.abs(scores - expected)
            # Infinities, and what is to be NaN, differ from themselves by NaN.
            off[(scores == expected) | (np.isnan(scores) & np.isnan(expected))] = 0
            # Written so that a NaN fails.
            wrong = ~(off <= self._tolerance)
            if wrong.any():
                worst = float(np.nanmax(off, initial=0))
                return f"{int(wrong.any(axis=1).sum())} of {len(rows)} rows differ, by up to {worst:.3g}"
        return None

    def run(self, number: int) -> float:
        """Return the seconds that `number` calls on the batch take."""
        if self._clock is not None:
            return self._clock(self._rows, number)
        run, rows = self._scores, self._rows
        start = time.perf_counter()
        for _ in range(number):
            run(rows)
        return time.perf_counter() - start
