"""`Feed`: one column of the matrix that kernels read, and how it is made from the caller's columns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hbtvm.graph.columns.steps import Encode, Step, check_codes
from hbtvm.graph.columns.table import Raw, Source


@dataclass(frozen=True, eq=False)
class Feed:
    """A column of numbers, or of codes of categories."""

    # Where the values come from: a column of the input, or of a row operation that runs on the host
    source: Source
    # What is done on the host, by `Step.apply`: nothing for numbers that a kernel takes as they are; for
    # categories the steps up to their `Encode`
    steps: tuple[Step, ...] = ()
    # `allow_nan`, `allow_inf`: whether NaN (after the steps) and infinities (before) are let pass; else they
    # are refused
    allow_nan: bool = True
    allow_inf: bool = True
    where: str = ""  # the column in the words of an error

    def validate(self) -> None:
        """Refuse look-ups without codes."""
        check_codes(self.steps)

    @property
    def encoder(self) -> Encode | None:
        """The step that makes codes, for a column of codes."""
        last = self.steps[-1] if self.steps else None
        return last if isinstance(last, Encode) else None


def as_they_come(feeds: Iterable[Feed]) -> bool:
    """Return whether all feeds are columns of the caller's rows to which nothing is done."""
    return all(isinstance(feed.source, Raw) and not feed.steps for feed in feeds)
