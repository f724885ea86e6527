"""Tables of marks of missing values: bools, computed for all columns of an array together."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from hbtvm.graph.columns.evaluate import Evaluator
from hbtvm.graph.columns.feeds import Feed
from hbtvm.graph.columns.steps import Cast, IsMissing, missing_in
from hbtvm.graph.columns.table import Column, Raw
from hbtvm.runtime.feeds.host import refuse


def are_marks(columns: Sequence[Column]) -> bool:
    """Return whether all columns are marks of missing values in the input, which the library returns as
    bools.

    Columns with further steps on marks are not.
    """
    return all(
        isinstance(column.source, Raw)
        and len(column.steps) == 2
        and isinstance(column.steps[0], IsMissing)
        and isinstance(column.steps[1], Cast)
        for column in columns
    )


class Marks:
    """Computes marks of missing values.

    `feeds`: the columns, for which `are_marks` is true, with names for errors.
    `width`: columns of the input.
    """

    def __init__(self, feeds: Sequence[Feed], width: int) -> None:
        self._feeds, self._width = feeds, width
        self._raws = [feed.source.index for feed in feeds if isinstance(feed.source, Raw)]
        missing = [feed.steps[0].missing for feed in feeds if isinstance(feed.steps[0], IsMissing)]
        self._missing = missing[0]
        # If indicators differ, columns are computed one by one.
        self._same_missing = all(value is missing[0] or value == missing[0] for value in missing)
        self._all = self._raws == list(range(width))
        self._no_nan = not all(feed.allow_nan for feed in feeds)
        self._no_inf = not all(feed.allow_inf for feed in feeds)

    def of_array(self, X: np.ndarray) -> np.ndarray | None:
        """Return the marks of an array, bool, shape (n, columns).

        None if `of_columns` has to read columns one by one, or to raise an error.
        """
        kind = X.dtype.kind
        if X.ndim != 2 or X.shape[1] != self._width or not self._same_missing or kind not in "iubf":
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
        """Return the marks of the input's columns, bool, shape (n,) each.

        Raises `InputError` if a column has refused values; it names the column.
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
