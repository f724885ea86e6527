"""The least time that an operator's work takes on one core: for bytes moved, and for operations."""

from __future__ import annotations

from dataclasses import dataclass

BANDWIDTH = 20e9
"""Bytes a second that one core copies."""

PEAK = 152e9
"""Operations of float32 a second that one core does in a product of matrices."""


@dataclass(frozen=True)
class Limit:
    """What one row takes at least.

    Attributes
    ----------
    bytes, operations
        Moved in and out with float32 rows, and done. Strings count as pointers of 8 bytes.
    formula
        How they come about.
    """

    bytes: float
    operations: float
    formula: str

    @property
    def seconds(self) -> float:
        """Seconds for a row: the larger of both."""
        return max(self.bytes / BANDWIDTH, self.operations / PEAK)


def moved(columns: int, outputs: int, operations: int = 0, what: str = "", width: int = 4) -> Limit:
    """So many numbers in and out, and some operations for each row.

    Parameters
    ----------
    columns, outputs
        Numbers a row.
    operations, what
        How many, and how they come about.
    width
        Bytes of an input.
    """
    inside = f"{width}·{columns} + 4·{outputs} B"
    return Limit(width * columns + 4 * outputs, operations, f"{inside}; {what} op" if operations else inside)


def product(columns: int, inner: int, outputs: int | None = None) -> Limit:
    """A product with a matrix of columns x inner; `outputs` numbers of a row are written."""
    written = inner if outputs is None else outputs
    return moved(columns, written, 2 * columns * inner, f"2·{columns}·{inner}")


def distances(columns: int, points: int, outputs: int, each: int, what: str) -> Limit:
    """A product with so many points, and `each` operations for one of them."""
    operations = points * (2 * columns + each)
    return moved(columns, outputs, operations, f"{points:,}·(2·{columns} + {each} {what})")
