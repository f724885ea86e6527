"""Time a kernel on an OpenCL device by the device's clock, with rows and tables on the device."""

from __future__ import annotations

import itertools

import numpy as np

from hbtvm.runtime.opencl.execution import DeviceKernel, Starter
from hbtvm.runtime.opencl.resources import Buffer, Queue

_APART = 1 << 27  # bytes of rows that runs go through in turn: more than caches hold
_MOST_COPIES = 16


class Resident:
    """Rows on a device, and a kernel to time on them.

    Runs read copies of the rows in turn, so that no run finds its rows in the device's cache.

    Raises `OpenclError` if the device has no room for all of them.

    `X`: shape (N, F), C-contiguous, of the kernel's type.
    `count`: rows of a run; by default N. For more than N, the device repeats the rows.
    """

    def __init__(self, kernel: DeviceKernel, X: np.ndarray, count: int | None = None) -> None:
        device, self._count = kernel.device, len(X) if count is None else count
        tiles = -(-self._count // kernel.row_tile)
        X = X[: self._count]
        size, whole = kernel.signature.rows.nbytes(tiles=tiles), self._count * X[:1].nbytes
        self._queue = Queue(device)
        rows = Buffer(device, size)
        self._queue.fill(rows, 0)
        self._queue.write(rows, X)
        known = X.nbytes
        while known < whole:  # doubled at each step
            more = min(known, whole - known)
            self._queue.copy(rows, known, rows, more)
            known += more
        copies = [Buffer(device, size) for _ in range(min(_MOST_COPIES, -(-_APART // size)) - 1)]
        for copy in copies:
            self._queue.copy(copy, 0, rows, size)
        self._queue.wait()
        out = Buffer(device, 8 * self._count * kernel.outputs)
        sums = None if kernel.direct else Buffer(device, kernel.sum_bytes(tiles))
        self._starters = [Starter(kernel, kernel.plain, each, sums, out) for each in (rows, *copies)]

    def seconds(self, number: int) -> float:
        """Return the seconds of `number` consecutive runs; waits for them.

        A run ends with scores by rows, so it includes the score epilogue of kernels that leave partial sums.
        """
        events = []
        for run, starter in enumerate(itertools.islice(itertools.cycle(self._starters), number)):
            events.append(starter.queue(self._queue, self._count, timed=run in (0, number - 1)))
        self._queue.wait()
        first, last = events[0][0], events[-1][1]
        assert first is not None and last is not None
        return last.seconds_since(first)
