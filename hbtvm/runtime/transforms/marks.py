"""Marks of missing values by themselves: bools, of all columns of an array at a time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hbtvm.graph.columns.evaluate import Evaluator
from hbtvm.graph.columns.feeds import Feed
from hbtvm.graph.columns.steps import Cast, IsMissing, missing_in
from hbtvm.graph.columns.table import Column, Raw
from hbtvm.runtime.feeds.host import refuse


def are_marks(columns: Sequence[Column]) -> bool:
    """Whether columns are marks of missing values in columns of the input, which the library has as bools.

    (What computes with marks has further steps on them.)
    """
    return all(
        isinstance(column.source, Raw)
        and len(column.steps) == 2
        and isinstance(column.steps[0], IsMissing)
        and isinstance(column.steps[1], Cast)
        for column in columns
    )


class Marks:
    """Computes them.

    `feeds`: the columns, for which `are_marks` is true, with names for errors.
    `width`: columns of the input.
    """

    def __init__(self, feeds: Sequence[Feed], width: int) -> None:
        self._feeds, self._width = feeds, width
        self._raws = [feed.source.index for feed in feeds if isinstance(feed.source, Raw)]
        missing = [feed.steps[0].missing for feed in feeds if isinstance(feed.steps[0], IsMissing)]
        self._missing = missing[0]
        # Where indicators differ, columns are looked at one by one.
        self._one = all(one is missing[0] or one == missing[0] for one in missing)
        self._all = self._raws == list(range(width))
        self._no_nan = not all(feed.allow_nan for feed in feeds)
        self._no_inf = not all(feed.allow_inf for feed in feeds)

    def of_array(self, X: np.ndarray) -> np.ndarray | None:
        """The marks in an array's rows, bool, shape (n, columns).

        None where `of_columns` has to read values one by one, or to say which is refused.
        """
        kind = X.dtype.kind
        if X.ndim != 2 or X.shape[1] != self._width or not self._one or kind not in "iubf":
            return None
        x = X if self._all else X[:, self._raws]
        if kind == "f":
            if X.dtype.itemsize not in (4, 8):
                return None
            if (self._no_nan and np.count_nonzero(np.isnan(x))) or (
                self._no_inf and np.count_nonzero(np.isinf(x))
            ):
                return None
        mask: np.ndarray = np.ascontiguousarray(missing_in(x, self._missing))
        return mask

    def of_columns(self, evaluator: Evaluator) -> list[np.ndarray]:
        """The marks in the input's columns, bool, shape (n,) each.

        Raises `InputError` if a column has values that are refused; names it.
        """
        masks = []
        for feed in self._feeds:
            values = evaluator.column(feed.source, ())
            if values.dtype.kind == "f":
                if not feed.allow_nan:
                    refuse(np.isnan(values), feed, "NaN, but the model takes no missing values here")
                if not feed.allow_inf:
                    refuse(np.isinf(values), feed, "infinity")
            masks.append(evaluator.column(feed.source, feed.steps[:1]).astype(bool))
        return masks
