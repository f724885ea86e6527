"""A stream of a GPU with memory for a chunk of rows and its scores."""

from __future__ import annotations

import contextlib

import numpy as np

from hbtvm.errors import DeviceError
from hbtvm.runtime.cuda.execution.work import Work
from hbtvm.runtime.cuda.memory import Event, Memory, Pinned, Stream
from hbtvm.runtime.gpu.launch import Scaling


class Lane:
    """A stream with memory for a chunk of rows and its scores, on the device and on the host.

    `capacity`: rows of a chunk, whole tiles.
    """

    def __init__(self, work: Work, capacity: int) -> None:
        gpu = work.gpu
        self.work, self.capacity = work, capacity
        self.stream, self._done = Stream(gpu), Event(gpu)
        self.rows = Memory(gpu, capacity * work.row_bytes)
        self.room = work.room(capacity, self.stream.handle)
        self._back: Pinned | None = None
        if work.whole_tiles:  # padding rows of the last tile are computed, too
            gpu.driver.call("cuMemsetD8Async", self.rows.handle, 0, self.rows.size, self.stream.handle)
        self._done.record(self.stream.handle)

    def copy(self, X: np.ndarray) -> None:
        """Queue the copy of a chunk to the device."""
        self.work.gpu.driver.call(
            "cuMemcpyHtoDAsync_v2", self.rows.handle, X.ctypes.data, X.nbytes, self.stream.handle
        )

    def begin(self, count: int, scaling: Scaling) -> None:
        """Queue the kernels for `count` copied rows, and the copy of their scores to the host."""
        gpu, stream = self.work.gpu, self.stream.handle
        size = count * self.work.outputs * 8
        if self._back is None:
            self._back = Pinned(gpu, self.capacity * self.work.outputs * 8)
        scores = self.room.scores(stream, self.rows.handle, count, None, scaling)
        gpu.driver.call("cuMemcpyDtoHAsync_v2", self._back.handle, scores, size, stream)

    def collect(self, out: np.ndarray) -> None:
        """Wait for the chunk, and copy its scores to `out`, float64 of shape (n, O)."""
        assert self._back is not None
        self.stream.wait()
        out[:] = self._back.array[: out.nbytes].view(np.float64).reshape(out.shape)

    def join(self, stream: int | None) -> None:
        """Make a stream wait for the last use of this lane's memory."""
        self._done.hold(stream)

    def leave(self, stream: int | None) -> None:
        """Mark the end of a stream's use of this lane's memory; the lane's stream waits for it."""
        self._done.record(stream)
        self._done.hold(self.stream.handle)

    def abandon(self) -> None:
        """Wait for the queued work, unless the device failed."""
        with contextlib.suppress(DeviceError):
            self.stream.wait()
