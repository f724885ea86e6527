"""Refuse missing and infinite values of a matrix's columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hbtvm.graph.columns.feeds import Feed
from hbtvm.graph.columns.steps import Within
from hbtvm.runtime.feeds.host import refuse


class Guards:
    """The values that feeds refuse.

    `feeds`: the columns of a matrix.
    `guarded`: positions of the feeds that refuse some values of it.
    `refuses`: by feed, refused values: 1 NaN, 2 infinities, 3 both; uint8, shape (feeds,).
    """

    def __init__(self, feeds: Sequence[Feed], guarded: Sequence[int]) -> None:
        self._feeds, self._guarded = feeds, guarded
        # None if every column accepts missing values.
        self._takes_no_nan = _mask([not feed.allow_nan for feed in feeds])
        self._takes_no_inf = _mask([not feed.allow_inf and not feed.steps for feed in feeds])
        kinds = [(not feed.allow_nan) + 2 * (not feed.allow_inf and not feed.steps) for feed in feeds]
        read = np.isin(np.arange(len(feeds)), guarded)
        self.refuses = np.where(read, kinds, 0).astype(np.uint8)

    def check(self, matrix: np.ndarray) -> None:
        """Raise `InputError`, which names the first column and row, if a value is refused."""
        # Mostly, values are missing where that is allowed: one pass over all values shows it.
        if not _some(np.isnan, matrix, self._takes_no_nan) and not _some(
            np.isinf, matrix, self._takes_no_inf
        ):
            return
        for j in self._guarded:
            feed, x = self._feeds[j], matrix[:, j]
            if not feed.allow_nan:
                refuse(np.isnan(x), feed, _nan_in_words(feed))
            if not feed.allow_inf and not feed.steps:
                refuse(np.isinf(x), feed, f"infinity or a value too large for {matrix.dtype}")


def _nan_in_words(feed: Feed) -> str:
    bounds = [step for step in feed.steps if isinstance(step, Within)]
    if not bounds:
        return "NaN, but the model takes no missing values here"
    low, high = max(step.low for step in bounds), min(step.high for step in bounds)
    return f"NaN or a number outside of {low:.6g} to {high:.6g}, which the model does not take"


def _mask(columns: list[bool]) -> np.ndarray | None:
    return np.array(columns) if any(columns) else None


def _some(test: Callable[[np.ndarray], np.ndarray], matrix: np.ndarray, columns: np.ndarray | None) -> bool:
    """Return whether a test is true of any value in some columns; `columns` is a mask (see `_mask`)."""
    if columns is None:
        return False
    result = test(matrix)
    # All values first: numpy is many times slower row by row.
    return bool(np.count_nonzero(result)) and bool((result & columns).any())
