"""How threads share a call: decided here, for the tuner that times a kernel and for the runtime that runs it.

A kernel was timed in one way: for so many rows, alone or shared among so many threads. A call of that many
rows, by a model of that many threads, runs in that very way. Other numbers of rows follow a model:

- What was timed while threads shared it is shared for any number of rows; rows are handed to another thread
  from `grain` tiles on, as they were then.
- What was timed on one thread stays there for up to as many rows. More rows are shared as soon as the time
  measured for a tile says that each share takes `CHUNK_SECONDS`, twice of what waking a thread costs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

Parallel = Literal["none", "rows", "trees"]

CHUNK_SECONDS = 60e-6
"""Work that is worth a hand-off to another thread."""


@dataclass(frozen=True)
class Parallelism:
    """How threads share the work of one kernel.

    Attributes
    ----------
    over
        What is shared: ``"rows"``, ``"trees"`` (each thread sums some tiles of trees, and the partial sums
        are added in a fixed order), or nothing.
    threads
        Threads that work on one call, the caller included.
    grain
        With ``"rows"``: fewest row tiles that are worth a hand-off to another thread.
    alone
        With ``"rows"``: most rows that the caller computes alone all the same.
    """

    over: Parallel = "none"
    threads: int = 1
    grain: int = 1
    alone: int = 0

    def busy(self, rows: int, row_tile: int) -> int:
        """Threads that work on a call of so many rows."""
        if self.over == "trees":
            return self.threads
        if self.over == "none" or rows <= self.alone or rows < 2 * self.grain * row_tile:
            return 1
        return max(1, min(self.threads, -(-rows // row_tile) // self.grain))


ALONE = Parallelism()
"""One thread, whatever there is to do."""


def timed(over: Parallel, threads: int, grain: int) -> Parallelism:
    """How the tuner runs a kernel in order to time it, on a model's threads."""
    if over == "none" or threads == 1:
        return ALONE
    return Parallelism(over, threads, grain)


def shared(
    over: Parallel, threads: int, grain: int, rows: int, row_tile: int, tile_seconds: float | None
) -> Parallelism:
    """How a kernel runs that was timed for `rows` rows; for as many rows as `timed` says.

    Parameters
    ----------
    over, threads, grain
        As for `timed`; `threads` are those that there are.
    tile_seconds
        Measured time of a row tile on one thread; None if nobody measured.
    """
    if over != "none" or threads == 1:
        return timed(over, threads, grain)
    own = (
        max(1, rows // row_tile) if tile_seconds is None else max(1, math.ceil(CHUNK_SECONDS / tile_seconds))
    )
    return Parallelism("rows", threads, own, alone=rows)
