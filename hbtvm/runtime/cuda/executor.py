"""Run a model's kernels on a GPU, on any number of rows.

Rows from the host go to the device in chunks, through two streams with a buffer each (ping-pong buffers):
while one computes, the other copies. A few rows are read by the kernel itself
(`hbtvm.runtime.cuda.mapped`). Rows that are on the device are computed in place, in their owner's stream.
"""

from __future__ import annotations

import contextlib
import ctypes

import numpy as np

from hbtvm.errors import DeviceError
from hbtvm.runtime.cuda.driver import OUT_OF_MEMORY, CudaError
from hbtvm.runtime.cuda.mapped import MappedLane, mapped_rows
from hbtvm.runtime.cuda.memory import Event, Memory, Pinned, Stream
from hbtvm.runtime.cuda.work import OneKernel, Work
from hbtvm.runtime.memory import empty

CHUNK_BYTES = 1 << 25
"""Bytes that rows which come from the host, with their scores, may take on the device, unless a single tile
takes more: enough that a copy runs at full speed and a kernel has work for all multiprocessors."""

_COPIED_BYTES = 1 << 20
"""Rows on the device of up to so many bytes are all copied to pad the last tile; of more, only that tile."""


class DeviceExecutor:
    """Kernels with their tables on a device; safe to call from several threads at once.

    Streams and buffers (lanes) that no call uses are in a free list.

    Parameters
    ----------
    work
        The kernels.
    base, divisor
        Base score, float64 of shape (O,), and what sums are divided by, for `run_on_device`.
    chunk_bytes
        As `CHUNK_BYTES`.

    Attributes
    ----------
    work
        The kernels.
    """

    def __init__(self, work: Work, base: np.ndarray, divisor: float, chunk_bytes: int = CHUNK_BYTES) -> None:
        self.work, self._gpu, self._divisor = work, work.gpu, divisor
        tile = work.row_tile
        rows = chunk_bytes // (work.row_bytes + work.room_bytes)
        self._most = max(tile, min(rows, work.most_rows) // tile * tile)
        with self._gpu.current():
            self._base = Memory.of(self._gpu, np.ascontiguousarray(base, np.float64))
        # What is computed where it lies takes memory for scores only, and is not cut.
        self._most_in_place = max(tile, work.most_rows // tile * tile)
        self._spare: list[_Lane] = []
        self._spare_in_place: list[_Lane] = []
        self._kernel = work.kernel if isinstance(work, OneKernel) else None
        self._few = 0 if self._kernel is None else mapped_rows(self._kernel)
        self._mapped: list[MappedLane] = []

    def run(self, X: np.ndarray) -> np.ndarray:
        """Sum the trees' values for each row.

        Parameters
        ----------
        X
            Shape (N, F), C-contiguous, native byte order, of the rows' type, in host memory.

        Returns
        -------
        float64, shape (N, O): plain sums, without base score or divisor.

        Raises
        ------
        DeviceError
            If the device has no room for a single tile, or fails.
        """
        if len(X) <= self._few:
            return self._run_mapped(X)
        out = empty((len(X), self.work.outputs), np.float64)
        with self._gpu.current():
            lanes: list[_Lane] = []
            try:
                self._stream_through(X, out, lanes)
            except BaseException:
                # Their queued work may still run, so they do not return to the free list.
                for lane in lanes:
                    lane.abandon()
                raise
            self._spare += lanes
        return out

    def _run_mapped(self, X: np.ndarray) -> np.ndarray:
        """As `run`, of a few rows."""
        try:
            lane = self._mapped.pop()
        except IndexError:
            assert self._kernel is not None
            with self._gpu.current():
                lane = MappedLane(self._kernel, self._few)
        sums = lane.run(X)  # where the device fails, nobody uses the lane again
        self._mapped.append(lane)
        return sums

    def run_on_device(self, rows: int, count: int, out: int, stream: int | None) -> None:
        """Queue raw scores for rows that are on the device.

        Parameters
        ----------
        rows, out
            Addresses: the rows' type, shape (count, F); float64, shape (count, O). Both have to
            stay allocated until the stream has finished what is queued here.
        stream
            The stream in which the rows are computed; None for the default stream.

        Raises
        ------
        DeviceError
            As `run`; or if the stream is being captured into a CUDA graph.
        """
        work, tile = self.work, self.work.row_tile
        aligned = rows % work.alignment == 0 and (tile * work.row_bytes) % work.alignment == 0
        copied = work.whole_tiles and (not aligned or count * work.row_bytes <= _COPIED_BYTES)
        with self._gpu.current():
            self._refuse_capture(stream)
            in_place = self._kernel is not None and not copied
            most = self._most_in_place if in_place else self._most
            lane = self._lane(min(self._padded(count), most), in_place=in_place)
            lane.join(stream)
            start = 0
            while start < count:
                here = min(lane.capacity, count - start)
                if work.whole_tiles and not copied and start + here == count and here > tile:
                    here = here // tile * tile
                at, into = rows + start * work.row_bytes, out + start * 8 * work.outputs
                if copied or (work.whole_tiles and here % tile):
                    size = here * work.row_bytes
                    self._gpu.driver.call("cuMemcpyDtoDAsync_v2", lane.rows.handle, at, size, stream)
                    at = lane.rows.handle
                lane.room.raw(stream, at, here, into, self._base.handle, self._divisor)
                start += here
            lane.leave(stream)
        (self._spare_in_place if in_place else self._spare).append(lane)

    def _refuse_capture(self, stream: int | None) -> None:
        """Raise `DeviceError` if what is queued in a stream is captured.

        A graph would keep addresses of memory that later calls use at the same time.
        """
        if stream is None:
            return  # the default stream can't be captured
        status = ctypes.c_int()
        self._gpu.driver.call("cuStreamIsCapturing", stream, ctypes.byref(status))
        if status.value:
            raise DeviceError(
                "the stream is being captured into a CUDA graph, which predictions can't be part of: their "
                "memory is shared by all calls; predict outside of the graph."
            )

    def _stream_through(self, X: np.ndarray, out: np.ndarray, lanes: list[_Lane]) -> None:
        """Compute chunk by chunk; the lanes taken from the free list are appended to `lanes`."""
        size = min(self._padded(len(X)), self._most)
        lanes.append(self._lane(size))
        size = min(size, lanes[0].capacity)
        waiting: list[tuple[_Lane, np.ndarray]] = []
        for chunk, start in enumerate(range(0, len(X), size)):
            if chunk == 1:
                try:
                    lanes.append(self._lane(size, least=size))
                except CudaError as error:
                    if error.code != OUT_OF_MEMORY:
                        raise  # without memory for a second lane, one is enough
            lane = lanes[chunk % len(lanes)]
            if len(waiting) == len(lanes):
                first, into = waiting.pop(0)
                first.collect(into)
            lane.begin(X[start : start + size])
            waiting.append((lane, out[start : start + size]))
        for first, into in waiting:
            first.collect(into)

    def _padded(self, rows: int) -> int:
        tile = self.work.row_tile
        return -(-rows // tile) * tile

    def _lane(self, rows: int, least: int | None = None, in_place: bool = False) -> _Lane:
        """Return a free or new lane for chunks of so many rows; of fewer, if there is too little memory.

        Parameters
        ----------
        least
            Fewest rows that will do; by default, a tile.
        in_place
            Whether rows are read where they are, but for a last tile.

        Raises
        ------
        CudaError
            If there is no room for `least` rows (by default, one tile).
        """
        # A list's pop and append are atomic: no two threads get the same lane.
        try:
            lane = (self._spare_in_place if in_place else self._spare).pop()
        except IndexError:
            lane = None
        if lane is not None and lane.capacity >= rows:
            return lane
        del lane  # releases its memory
        tile = self.work.row_tile
        fewest = (least or tile) // tile
        # Rounded up to a power of two, so that calls that grow little by little reuse the lane.
        most = self._most_in_place if in_place else self._most
        tiles = max(rows // tile, min(1 << (rows // tile - 1).bit_length(), most // tile))
        while True:
            try:
                return _Lane(self.work, tiles * tile, tile if in_place else tiles * tile)
            except CudaError as error:
                if error.code != OUT_OF_MEMORY or tiles <= fewest:
                    raise
            tiles = max(fewest, tiles // 2)


class _Lane:
    """A stream with memory for a chunk of rows and their scores, on the device and back on the host.

    Parameters
    ----------
    capacity, held
        Rows of a chunk, and those of them that there is memory for.
    """

    def __init__(self, work: Work, capacity: int, held: int) -> None:
        gpu = work.gpu
        self.work, self.capacity = work, capacity
        self.stream, self._done = Stream(gpu), Event(gpu)
        self.rows = Memory(gpu, held * work.row_bytes)
        self.room = work.room(capacity, self.stream.handle)
        self._back: Pinned | None = None
        # Kernels also compute the rows that pad the last tile, so those must be defined.
        gpu.driver.call("cuMemsetD8Async", self.rows.handle, 0, self.rows.size, self.stream.handle)
        self._done.record(self.stream.handle)

    def begin(self, X: np.ndarray) -> None:
        """Queue a chunk's copy to the device, its kernels, and the copy of its sums back."""
        gpu, stream = self.work.gpu, self.stream.handle
        size = len(X) * self.work.outputs * 8
        if self._back is None:
            self._back = Pinned(gpu, self.capacity * self.work.outputs * 8)
        gpu.driver.call("cuMemcpyHtoDAsync_v2", self.rows.handle, X.ctypes.data, X.nbytes, stream)
        sums = self.room.sums(stream, self.rows.handle, len(X))
        gpu.driver.call("cuMemcpyDtoHAsync_v2", self._back.handle, sums, size, stream)

    def collect(self, out: np.ndarray) -> None:
        """Wait for the chunk, and copy its sums to `out`, float64 of shape (n, O)."""
        assert self._back is not None
        self.stream.wait()
        out[:] = self._back.array[: out.nbytes].view(np.float64).reshape(out.shape)

    def join(self, stream: int | None) -> None:
        """Make a stream wait for the last use of this lane's memory."""
        self._done.hold(stream)

    def leave(self, stream: int | None) -> None:
        """Mark the end of a stream's use of this lane's memory; the lane's own stream waits for it."""
        self._done.record(stream)
        self._done.hold(self.stream.handle)

    def abandon(self) -> None:
        """Wait for what was queued, unless the device failed."""
        with contextlib.suppress(DeviceError):
            self.stream.wait()
