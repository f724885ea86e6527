"""The free list of an executor's lanes: queues with memory for a chunk of rows."""

from __future__ import annotations

from typing import Protocol, TypeVar


class _Lane(Protocol):
    capacity: int  # rows of a chunk


_L = TypeVar("_L", bound=_Lane)


def spare_lane(spare: list[_L], rows: int) -> _L | None:
    """Take a lane from the list; None if it is empty, or if the lane is too small, and then released."""
    # A list's pop and append are atomic, so threads never share a lane.
    try:
        lane = spare.pop()
    except IndexError:
        return None
    return lane if lane.capacity >= rows else None
