"""From tables to the matrix that a kernel reads: feeds, and what is left to do of each column.

What a column becomes (`Resolved`) is decided by its steps: codes with a number for each, or a number with
steps that an anchor may swallow. What no anchor can swallow is computed on the host (`Feeds.host`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from hbtvm.graph.columns.evaluate import of_numbers
from hbtvm.graph.columns.feeds import Feed
from hbtvm.graph.columns.steps import Cast, Encode, Equals, Step
from hbtvm.graph.columns.table import Column, Made, Raw, RowOperation


@dataclass(frozen=True)
class Coded:
    """A number for each code of a column of categories."""

    prefix: tuple[Step, ...]  # the steps up to `Encode`, which make the codes
    after: tuple[Step, ...] = ()  # the steps behind it, which make the number of a code

    def __len__(self) -> int:
        """Codes, that of unknown values included."""
        encoder = self.prefix[-1]
        assert isinstance(encoder, Encode)
        return len(encoder)

    @cached_property
    def values(self) -> np.ndarray:
        """The number of each code: float64, shape (codes,)."""
        return of_numbers(self.after, np.arange(len(self), dtype=np.float64))

    @property
    def hot(self) -> int | None:
        """The only code whose number is not 0, where that is 1: a column of a one-hot encoder.

        There may be as many columns as codes, so that no array of all codes is made for each.
        """
        steps = [step for step in self.after if not isinstance(step, Cast)]
        if len(steps) == 1 and isinstance(steps[0], Equals):
            codes = steps[0].codes
            return codes[0] if len(codes) == 1 and 0 <= codes[0] < len(self) else None
        ones = np.flatnonzero(self.values)
        return int(ones[0]) if len(ones) == 1 and self.values[ones[0]] == 1.0 else None

    @property
    def finite(self) -> bool:
        """Whether all numbers are."""
        return self.hot is not None or bool(np.isfinite(self.values).all())


@dataclass(frozen=True)
class Number:
    """A column of numbers with steps on it."""

    steps: tuple[Step, ...]


def resolve(column: Column) -> Coded | Number:
    """What is left to do of a column."""
    for at, step in enumerate(column.steps):
        if isinstance(step, Encode):
            return Coded(column.steps[: at + 1], column.steps[at + 1 :])
    return Number(column.steps)


class Feeds:
    """The columns of the matrix, each made once however many columns of a table need it.

    `names`: names of the input's columns, for errors.
    """

    def __init__(self, names: Sequence[str] | None = None) -> None:
        self._names = names
        self.feeds: list[Feed] = []
        self._at: dict[tuple[Any, ...], int] = {}

    def number(self, column: Column, allow_nan: bool, allow_inf: bool) -> int:
        """The feed of a column's numbers as they come; the index of the matrix's column."""
        return self._add(Feed(column.source, (), allow_nan, allow_inf))

    def codes(self, source: Raw | Made, prefix: tuple[Step, ...]) -> int:
        """The feed of a column's codes."""
        return self._add(Feed(source, prefix))

    def host(self, column: Column, allow_nan: bool, allow_inf: bool) -> int:
        """The feed of a column after all of its steps, which the host computes."""
        return self._add(Feed(column.source, column.steps, allow_nan, allow_inf))

    def made(self, operation: RowOperation, index: int) -> int:
        """The feed of a column that an operation makes, whatever its values."""
        return self._add(Feed(Made(operation, index)))

    def merge(self, feed: Feed) -> int:
        """A feed that was made for part of the matrix; the index of the matrix's column."""
        return self._add(feed)

    def append(self, column: Column, allow_nan: bool, allow_inf: bool) -> None:
        """Add the feed of a column after all of its steps, whatever feeds there are."""
        known = column.allow_nan and allow_nan, column.allow_inf and allow_inf
        self.feeds.append(Feed(column.source, column.steps, *known, self._where(column.source)))

    def _where(self, source: Raw | Made) -> str:
        if isinstance(source, Made):
            return f"{type(source.operation).__name__}'s column {source.index}"
        return f"column {source.index}" if self._names is None else f"column {self._names[source.index]!r}"

    def _add(self, feed: Feed) -> int:
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
    """Whether NaN is still NaN after the steps."""
    return bool(np.isnan(of_numbers(steps, np.array([np.nan]))[0]))
