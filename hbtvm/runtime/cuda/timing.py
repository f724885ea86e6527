"""Time a kernel on a GPU by the device's clock, with rows and tables on the device; time copies apart."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hbtvm.errors import DeviceError
from hbtvm.runtime.cuda import driver
from hbtvm.runtime.cuda.driver import Gpu
from hbtvm.runtime.cuda.kernel import DeviceKernel
from hbtvm.runtime.cuda.memory import Event, Graph, Memory, Pinned, Stream

_ALIGNED = 256  # bytes to which allocations of the device are aligned
_COPIES = 5  # timed copies, after a warm-up
_TOGETHER = 64  # runs of a graph: launched one by one, kernels under 10 us would wait for the host
_APART = 128 * 2**20  # bytes of rows that runs go through in turn: more than an H200's L2 (60 MB) holds


@dataclass(frozen=True)
class Copies:
    """Seconds of copies between pinned host memory and a device: rows there, sums back."""

    there: float
    back: float


def time_copies(gpu: Gpu, rows: int, sums: int) -> Copies:
    """Time copies to a device and back; waits for them.

    Raises `CudaError` if there is no room.

    `rows`, `sums`: bytes to and from the device.
    """
    with gpu.current():
        host, memory = Pinned(gpu, max(rows, sums)), Memory(gpu, max(rows, sums))
        stream, (first, last) = Stream(gpu), (Event(gpu, timed=True) for _ in range(2))

        def timed(name: str, *arguments: int) -> float:
            seconds = []
            for _ in range(1 + _COPIES):
                first.record(stream.handle)
                gpu.driver.call(name, *arguments, stream.handle)
                last.record(stream.handle)
                seconds.append(last.seconds_since(first))
            return statistics.median(seconds[1:])

        return Copies(
            timed("cuMemcpyHtoDAsync_v2", memory.handle, host.handle, rows),
            timed("cuMemcpyDtoHAsync_v2", host.handle, memory.handle, sums),
        )


def copies_of(device: int, row: int, outputs: int, sizes: Sequence[int]) -> dict[int, Copies]:
    """Time copies of batches to and from a GPU, by rows; empty if it has no room for a batch.

    `row`: bytes of a row.
    `outputs`: scores of a row, float64.
    """
    try:
        gpu = driver.gpu(device)
        return {rows: time_copies(gpu, rows * row, rows * outputs * 8) for rows in sizes}
    except DeviceError:
        return {}


class Resident:
    """Rows on a device, and a kernel to time on them.

    Runs read copies of the rows in turn, so that no run finds its rows in the device's cache.

    Raises `CudaError` if the device has no room for all of them.

    `X`: shape (N, F), C-contiguous, of the kernel's type.
    `count`: rows of a run; by default N. For more than N, the device repeats the rows.
    """

    def __init__(self, kernel: DeviceKernel, X: np.ndarray, count: int | None = None) -> None:
        self._kernel, self._gpu = kernel, kernel.gpu
        self._count = len(X) if count is None else count
        self._tiles = -(-self._count // kernel.row_tile)
        X = X[: self._count]
        signature, outputs = kernel.signature, kernel.outputs
        self._sizes = self._count * X.shape[1] * X.itemsize, self._count * outputs * 8
        with self._gpu.current():
            host = Pinned(self._gpu, X.nbytes)
            host.array[:] = X.reshape(-1).view(np.uint8)
            size = signature.rows.nbytes(tiles=self._tiles)
            self._stride = -(-size // _ALIGNED) * _ALIGNED
            self._copies = max(1, min(_TOGETHER, -(-_APART // self._stride)))
            self._rows = Memory(self._gpu, self._stride * self._copies)
            self._sums = Memory(self._gpu, kernel.sum_bytes(self._tiles * kernel.row_tile))
            self._scores = Memory(self._gpu, self._sizes[1])
            self._stream = Stream(self._gpu)
            self._first, self._last = (Event(self._gpu, timed=True) for _ in range(2))
            self._graph: Graph | None = None
            self._launcher = kernel.launcher(kernel.plain)
            stream = self._stream.handle
            self._gpu.driver.call("cuMemsetD8Async", self._rows.handle, 0, self._rows.size, stream)
            self._gpu.driver.call("cuMemcpyHtoDAsync_v2", self._rows.handle, host.handle, X.nbytes, stream)
            self._repeat(X.nbytes, self._sizes[0])
            self._repeat(self._stride, self._rows.size)
            self._stream.wait()

    def _repeat(self, known: int, whole: int) -> None:
        """Fill the first `whole` bytes with copies of the first `known`, doubling at each step."""
        start = self._rows.handle
        while known < whole:
            more = min(known, whole - known)
            self._gpu.driver.call("cuMemcpyDtoDAsync_v2", start + known, start, more, self._stream.handle)
            known += more

    def seconds(self, number: int) -> float:
        """Return the seconds of `number` consecutive runs; waits for them.

        Many runs are launched as graphs, so that the device does not wait for the host in between. A run ends
        with scores by rows, so it includes the score epilogue of kernels that leave partial sums.
        """
        together, alone = divmod(number, _TOGETHER)
        with self._gpu.current():
            if together and self._graph is None:
                self._graph = Graph(self._stream, lambda: self._queue(_TOGETHER))
            self._first.record(self._stream.handle)
            for _ in range(together):
                assert self._graph is not None
                self._graph.start()
            self._queue(alone)
            return self._since()

    def _queue(self, number: int) -> None:
        """Queue `number` runs."""
        sums, out = self._sums.handle, self._scores.handle
        for run in range(number):
            rows = self._rows.handle + run % self._copies * self._stride
            self._launcher.queue(self._stream.handle, rows, self._count, sums, out)

    def copies(self) -> Copies:
        """Time copies of the rows to the device and of their scores back; waits for them."""
        return time_copies(self._gpu, *self._sizes)

    def _since(self) -> float:
        self._last.record(self._stream.handle)
        return self._last.seconds_since(self._first)
