"""Which kernels run for a number of rows, from what was measured when they were tuned."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from hbtvm.runtime.package import KernelEntry
from hbtvm.runtime.parallelism import Parallelism, shared, timed

HANDOFF_SECONDS = 30e-6
"""What it costs to wake other threads and to wait for them."""

CALL_SECONDS = 1.5e-6
"""What a call costs beside the kernel."""

_REMEMBERED = 4096
_BRIEF_SECONDS = 50e-6


class Step(NamedTuple):
    """Rows `start` to `stop` go through kernel number `kernel`."""

    kernel: int
    start: int
    stop: int


class Planner:
    """Chooses among the kernels of one input type.

    For a number of rows that kernels were timed for, it takes the fastest of those, which then run as they
    were timed. For others it estimates by what was timed, and takes the cheapest: one kernel for all rows, or
    one for the whole tiles and another for the rest. Where not all were timed, it takes the kernel whose
    tuned number of rows is nearest (by ratio). The same kernels and number of rows always give the same plan.

    Parameters
    ----------
    kernels
        At least one.
    threads
        For each kernel, threads that may work on a call.
    """

    def __init__(self, kernels: Sequence[KernelEntry], threads: Sequence[int]) -> None:
        self._rows = [kernel.rows for kernel in kernels]
        self._tile = [kernel.signature.row_tile for kernel in kernels]
        self._sharing = [sharing(kernel, own) for kernel, own in zip(kernels, threads, strict=True)]
        self._timed: dict[int, tuple[float, int]] = {}
        for number, (kernel, own) in enumerate(zip(kernels, threads, strict=True)):
            if kernel.seconds is not None and own == kernel.threads:
                best = self._timed.get(kernel.rows, (math.inf, 0))
                self._timed[kernel.rows] = min(best, (kernel.seconds, number))
        times = [tile_seconds(kernel) for kernel in kernels]
        self._seconds = [t for t in times if t is not None]
        self._measured = len(self._seconds) == len(kernels)
        self._plans: dict[int, tuple[Step, ...]] = {}

    def plan(self, n: int) -> tuple[Step, ...]:
        """The steps that compute `n` rows, in order."""
        found = self._plans.get(n)
        if found is None:
            found = self._choose(n)
            # Services see few sizes; whoever sees more pays a little each time, not ever more memory.
            if len(self._plans) >= _REMEMBERED:
                self._plans.clear()
            self._plans[n] = found
        return found

    def _choose(self, n: int) -> tuple[Step, ...]:
        kernels = range(len(self._rows))
        if n in self._timed:
            return (Step(self._timed[n][1], 0, n),)
        if not self._measured or n == 0:
            nearest = min(kernels, key=lambda k: (abs(math.log(max(n, 1) / self._rows[k])), k))
            return (Step(nearest, 0, n),)
        best = min(kernels, key=lambda k: (self.seconds(k, n), k))
        cost = self.seconds(best, n)
        plan: tuple[Step, ...] = (Step(best, 0, n),)
        for bulk in kernels:
            whole = n - n % self._tile[bulk]
            if whole in (0, n):
                continue
            first = self.seconds(bulk, whole)
            for rest in kernels:
                both = first + self.seconds(rest, n - whole)
                if rest != bulk and both < cost:
                    cost, plan = both, (Step(bulk, 0, whole), Step(rest, whole, n))
        return plan

    def seconds(self, kernel: int, n: int) -> float:
        """Estimated time of `n` rows through one measured kernel."""
        tiles = -(-n // self._tile[kernel])
        work = tiles * self._seconds[kernel]
        busy = self._sharing[kernel].busy(n, self._tile[kernel])
        if busy <= 1:
            return CALL_SECONDS + work
        return CALL_SECONDS + HANDOFF_SECONDS + work / busy


def tile_seconds(kernel: KernelEntry) -> float | None:
    """Time of one row tile on one thread, from the measured call; None if there was none."""
    if kernel.seconds is None:
        return None
    row_tile = kernel.signature.row_tile
    tiles = -(-kernel.rows // row_tile)
    busy = timed(kernel.parallel, kernel.threads, kernel.grain).busy(kernel.rows, row_tile)
    overhead = CALL_SECONDS + (HANDOFF_SECONDS if busy > 1 else 0.0)
    # A call can't have been all overhead.
    return max(kernel.seconds - overhead, kernel.seconds / 2) * busy / tiles


def brief_tiles(kernel: KernelEntry) -> int:
    """Most row tiles of a call that is too short to let other Python threads run meanwhile."""
    seconds = tile_seconds(kernel)
    return 0 if seconds is None else int(_BRIEF_SECONDS / seconds)


def sharing(kernel: KernelEntry, threads: int) -> Parallelism:
    """How threads share calls of a kernel, given how many there are."""
    row_tile, seconds = kernel.signature.row_tile, tile_seconds(kernel)
    return shared(kernel.parallel, threads, kernel.grain, kernel.rows, row_tile, seconds)
