"""`Feed`: a column of the matrix that kernels read, computed from the caller's columns."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hbtvm.graph.columns.steps import Encode, Step, check_codes
from hbtvm.graph.columns.table import Raw, Source


@dataclass(frozen=True, eq=False)
class Feed:
    """A column of numbers, or of codes of categories."""

    source: Source  # a column of the input, or of a row operation that runs on the host
    # The host's steps: none for numbers that a kernel reads unchanged; up to `Encode` for categories
    steps: tuple[Step, ...] = ()
    # `allow_nan`, `allow_inf`: whether NaN (after the steps) and infinities (before) are accepted
    allow_nan: bool = True
    allow_inf: bool = True
    where: str = ""  # the column's name in errors

    def validate(self) -> None:
        """Raise `ValueError` for look-ups without codes."""
        check_codes(self.steps)

    @property
    def encoder(self) -> Encode | None:
        """The last step if it is an encoder, else None."""
        last = self.steps[-1] if self.steps else None
        return last if isinstance(last, Encode) else None


def as_they_come(feeds: Iterable[Feed]) -> bool:
    """Return whether all feeds are unchanged columns of the caller's rows."""
    return all(isinstance(feed.source, Raw) and not feed.steps for feed in feeds)
