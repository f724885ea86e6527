"""From tables to the matrix that a kernel reads: feeds, and the remaining steps of each column.

The steps decide about a column's form (`resolve`): codes with a number for each, or a number with steps that
an anchor may absorb. The host computes the others (`Feeds.host`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from hbtvm.errors import InputError
from hbtvm.graph.columns.evaluate import of_numbers
from hbtvm.graph.columns.feeds import Feed
from hbtvm.graph.columns.steps import Cast, Encode, Equals, Step
from hbtvm.graph.columns.table import Column, Made, Raw, RowOperation


@dataclass(frozen=True)
class Coded:
    """A number for each code of a column of categories."""

    prefix: tuple[Step, ...]  # the steps up to `Encode`: from values to codes
    after: tuple[Step, ...] = ()  # the steps behind it: from codes to numbers

    def __len__(self) -> int:
        """Return the number of codes, including the code of unknown values."""
        encoder = self.prefix[-1]
        assert isinstance(encoder, Encode)
        return len(encoder)

    @cached_property
    def values(self) -> np.ndarray:
        """The number of each code: float64, shape (codes,)."""
        return of_numbers(self.after, np.arange(len(self), dtype=np.float64))

    @property
    def hot(self) -> int | None:
        """The code of a column of a one-hot encoder: its number is 1, all others are 0; else None.

        There may be as many such columns as codes, so that an array of all codes is avoided.
        """
        steps = [step for step in self.after if not isinstance(step, Cast)]
        if len(steps) == 1 and isinstance(steps[0], Equals):
            codes = steps[0].codes
            return codes[0] if len(codes) == 1 and 0 <= codes[0] < len(self) else None
        ones = np.flatnonzero(self.values)
        return int(ones[0]) if len(ones) == 1 and self.values[ones[0]] == 1.0 else None

    @property
    def finite(self) -> bool:
        """Whether all numbers are finite."""
        return self.hot is not None or bool(np.isfinite(self.values).all())


@dataclass(frozen=True)
class Number:
    """A column of numbers with steps on it."""

    steps: tuple[Step, ...]


def resolve(column: Column) -> Coded | Number:
    """Return a column's form."""
    for at, step in enumerate(column.steps):
        if isinstance(step, Encode):
            return Coded(column.steps[: at + 1], column.steps[at + 1 :])
    return Number(column.steps)


class Feeds:
    """The columns of the matrix, each computed once however many columns of a table need it.

    `names`: names of the input's columns, for errors.
    """

    def __init__(self, names: Sequence[str] | None = None) -> None:
        self._names = names
        self.feeds: list[Feed] = []
        self._at: dict[tuple[Any, ...], int] = {}

    def number(self, column: Column, allow_nan: bool, allow_inf: bool) -> int:
        """Feed a column's numbers without its steps; return the index of the matrix's column."""
        return self.merge(Feed(column.source, (), allow_nan, allow_inf))

    def codes(self, source: Raw | Made, prefix: tuple[Step, ...]) -> int:
        """Feed a column's codes."""
        return self.merge(Feed(source, prefix))

    def host(self, column: Column, allow_nan: bool, allow_inf: bool) -> int:
        """Feed a column after all of its steps, which the host computes."""
        return self.merge(Feed(column.source, column.steps, allow_nan, allow_inf))

    def computed(self, operation: RowOperation, index: int) -> int:
        """Feed a column of an operation, whatever its values."""
        return self.merge(Feed(Made(operation, index)))

    def append(self, column: Column, allow_nan: bool, allow_inf: bool) -> None:
        """Append the feed of a column after all of its steps, even if an equal feed exists."""
        known = column.allow_nan and allow_nan, column.allow_inf and allow_inf
        self.feeds.append(Feed(column.source, column.steps, *known, self._where(column.source)))

    def _where(self, source: Raw | Made) -> str:
        if isinstance(source, Made):
            return f"{type(source.operation).__name__}'s column {source.index}"
        return f"column {source.index}" if self._names is None else f"column {self._names[source.index]!r}"

    def merge(self, feed: Feed) -> int:
        """Add a feed unless an equal one exists; return the index of the matrix's column."""
        key = (feed.source, *map(id, feed.steps))
        at = self._at.setdefault(key, len(self.feeds))
        if at == len(self.feeds):
            self.feeds.append(replace(feed, where=self._where(feed.source)))
        else:
            known = self.feeds[at]
            self.feeds[at] = replace(
                known,
                allow_nan=known.allow_nan and feed.allow_nan,
                allow_inf=known.allow_inf and feed.allow_inf,
            )
        return at


def keeps_nan(steps: tuple[Step, ...]) -> bool:
    """Return whether NaN is still NaN after the steps; no encoder among them refuses it."""
    try:
        return bool(np.isnan(of_numbers(steps, np.array([np.nan]))[0]))
    except InputError:
        return False
