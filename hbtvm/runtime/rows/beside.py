"""Rows with further columns beside them, such as the results of a Python step for some of their columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hbtvm.runtime.rows.containers import ArrayRows, Container, container_of
from hbtvm.runtime.rows.pandas_frame import PandasFrame
from hbtvm.runtime.rows.raw import RawColumn


@dataclass(frozen=True)
class Beside:
    """Rows, and further columns."""

    rows: Any  # as a caller passes them
    more: np.ndarray  # shape (n, columns)
    names: tuple[str, ...]  # of the further columns

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        """Return all columns as an array, of shape (n, n_features)."""
        return np.column_stack([np.asarray(self.rows), self.more]).astype(dtype or None)


class BesideRows(Container):
    """The columns of a container, and those of an array behind them.

    `first`: the container.
    `beside`: the further columns.
    """

    def __init__(self, first: Container | PandasFrame, beside: Beside) -> None:
        self._first, self._more = first, ArrayRows(beside.more)
        self.rows, self.width = first.rows, first.width + self._more.width
        names = first.names
        self.names = None if names is None else (*names, *beside.names)

    def column(self, at: int, null: Any) -> RawColumn:
        inside = at < self._first.width
        return self._first.column(at, null) if inside else self._more.column(at - self._first.width, null)

    def row(self, at: Sequence[int], nulls: Sequence[Any]) -> list[Any] | None:
        if isinstance(self._first, PandasFrame) and self._first.has_small():
            return None
        width = self._first.width
        first = self._first.row(
            [i for i in at if i < width], [n for i, n in zip(at, nulls, strict=True) if i < width]
        )
        more = self._more.row([i - width for i in at if i >= width], [])
        if first is None or more is None:
            return None
        values, others = iter(first), iter(more)
        return [next(values) if i < width else next(others) for i in at]


def beside_rows(X: Beside, names: tuple[str, ...] | None) -> BesideRows:
    """Return the container of rows with further columns; `names` are those of all the model's columns."""
    first = container_of(X.rows, None if names is None else names[: -X.more.shape[1]])
    return BesideRows(ArrayRows(np.asarray(X.rows)) if first is None else first, X)
