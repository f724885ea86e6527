"""Run a model's kernels on a GPU, on any number of rows.

Rows from the host go to the device in chunks, through two streams with a buffer each (ping-pong buffers):
while one computes, the other copies (`hbtvm.runtime.cuda.execution.upload`). The kernel itself reads a few
rows (`hbtvm.runtime.cuda.execution.mapped`). Rows on the device are computed in place, in their owner's
stream.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Iterator, Sequence

import numpy as np

from hbtvm.errors import DeviceError
from hbtvm.runtime.cuda.driver import OUT_OF_MEMORY, CudaError
from hbtvm.runtime.cuda.execution.lane import Lane
from hbtvm.runtime.cuda.execution.mapped import MappedLane, mapped_rows
from hbtvm.runtime.cuda.execution.upload import LEAST_BYTES, PinnedUpload, Staging, Upload
from hbtvm.runtime.cuda.execution.work import OneKernel, Work
from hbtvm.runtime.cuda.launcher import Launcher
from hbtvm.runtime.cuda.memory import Memory
from hbtvm.runtime.gpu.launch import Scaling
from hbtvm.runtime.gpu.spare import spare_lane
from hbtvm.runtime.memory import empty

CHUNK_BYTES = 1 << 25
"""Most bytes of a chunk's rows and scores on the device, unless a single tile takes more: enough for copies
at full speed and for work for all multiprocessors."""


class DeviceExecutor:
    """Kernels with their tables on a device; safe to call from several threads at once.

    A free list holds the unused streams and buffers (lanes).

    `base`, `divisor`: raw scores are sums / divisor + base; base is float64, shape (O,).
    `chunk_bytes`: as `CHUNK_BYTES`.
    """

    def __init__(self, work: Work, base: np.ndarray, divisor: float, chunk_bytes: int = CHUNK_BYTES) -> None:
        self.work, self._gpu = work, work.gpu
        tile = work.row_tile
        rows = chunk_bytes // (work.row_bytes + work.room_bytes)
        self._most = max(tile, min(rows, work.most_rows) // tile * tile)
        self._base = np.ascontiguousarray(base, np.float64)
        with self._gpu.current():
            self._memory = Memory.of(self._gpu, self._base)
        self._scaling = Scaling(self._memory.handle, float(self._base[0]), divisor)
        self._spare: list[Lane] = []
        self._spare_staging: list[Staging] = []
        self._kernel = work.kernel if isinstance(work, OneKernel) else None
        self._poison = isinstance(work, OneKernel) and work.poison
        self._few = 0 if self._kernel is None else mapped_rows(self._kernel)
        self._mapped: list[MappedLane] = []
        self._launchers: list[Launcher] = []
        self._keeps_alignment = work.row_tile * work.row_bytes % work.alignment == 0

    def run(self, X: np.ndarray) -> np.ndarray:
        """Return raw scores of rows in host memory.

        Raises `DeviceError` if the device has no room for a single tile, or fails.

        `X`: shape (N, F), C-contiguous, native byte order, of the rows' type, in host memory.
        Returns float64, shape (N, O).
        """
        if len(X) <= self._few:
            return self._run_mapped(X)
        out = empty((len(X), self.work.outputs), np.float64)
        with self._gpu.current():
            lanes: list[Lane] = []
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
        """Run as `run` does, for a few rows."""
        try:
            lane = self._mapped.pop()
        except IndexError:
            assert self._kernel is not None
            with self._gpu.current():
                lane = MappedLane(self._kernel, self._few, self._scaling, self._base, self._poison)
        scores = lane.run(X)  # if the device fails, the lane is dropped
        self._mapped.append(lane)
        return scores

    def run_on_device(self, rows: int, count: int, out: int, stream: int | None) -> None:
        """Queue raw scores for rows on the device, which must be current.

        Raises `DeviceError` as `run`; or if the stream is being captured into a CUDA graph.

        `rows`, `out`: addresses: the rows' type, shape (count, F); float64, shape (count, O). Both must
            stay allocated until the stream has finished the queued work.
        `stream`: the stream to queue in; None for the default stream.
        """
        work, kernel = self.work, self._kernel
        aligned = self._keeps_alignment and rows % work.alignment == 0
        self._refuse_capture(stream)
        if aligned and kernel is not None and kernel.direct:
            # It uses the caller's memory only, so it waits for no other call.
            try:
                launcher = self._launchers.pop()
            except IndexError:
                launcher = kernel.launcher(self._scaling)
            for start in range(0, count, work.most_rows):
                here = min(work.most_rows, count - start)
                at, into = rows + start * work.row_bytes, out + start * 8 * work.outputs
                launcher.queue(stream, at, here, 0, into)
            self._launchers.append(launcher)
            return
        copied = work.whole_tiles or not aligned
        lane = self._lane(min(self._padded(count), self._most))
        lane.join(stream)
        for start in range(0, count, lane.capacity):
            here = min(lane.capacity, count - start)
            at, into = rows + start * work.row_bytes, out + start * 8 * work.outputs
            if copied:
                size = here * work.row_bytes
                self._gpu.driver.call("cuMemcpyDtoDAsync_v2", lane.rows.handle, at, size, stream)
                at = lane.rows.handle
            lane.room.scores(stream, at, here, into, self._scaling)
        lane.leave(stream)
        self._spare.append(lane)

    def _refuse_capture(self, stream: int | None) -> None:
        """Raise `DeviceError` if a stream is being captured.

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

    def _stream_through(self, X: np.ndarray, out: np.ndarray, lanes: list[Lane]) -> None:
        """Compute chunk by chunk; append the used lanes to `lanes`."""
        size = min(self._padded(len(X)), self._most)
        lanes.append(self._lane(size))
        size = min(size, lanes[0].capacity)
        if len(X) <= size and X.nbytes < LEAST_BYTES:
            lanes[0].copy(X)
            lanes[0].begin(len(X), self._scaling)
            lanes[0].collect(out)
            return
        if len(X) > size:
            try:
                lanes.append(self._lane(size, least=size))
            except CudaError as error:
                if error.code != OUT_OF_MEMORY:
                    raise  # without memory for a second lane, the first suffices
        waiting: list[tuple[Lane, np.ndarray]] = []
        with self._upload(X, size, lanes) as upload:
            for chunk, start in enumerate(range(0, len(X), size)):
                lane, into = lanes[chunk % len(lanes)], out[start : start + size]
                if len(waiting) == len(lanes):
                    first, done = waiting.pop(0)
                    first.collect(done)
                upload.sent(chunk)
                lane.begin(len(into), self._scaling)
                upload.used(chunk)
                waiting.append((lane, into))
            for lane, into in waiting:
                lane.collect(into)

    @contextlib.contextmanager
    def _upload(self, X: np.ndarray, rows: int, lanes: Sequence[Lane]) -> Iterator[Upload]:
        """Return a context within which rows are copied to lanes, `rows` at a time."""
        places = [(lane.rows, lane.stream) for lane in lanes]
        staging = self._staging() if X.nbytes >= LEAST_BYTES else None
        if staging is None:
            yield Upload(self._gpu, X, rows, places)
            return
        with PinnedUpload(self._gpu, X, rows, places, staging) as upload:
            yield upload
        # After an error, copies may still be queued, so it does not return to the free list.
        self._spare_staging.append(staging)

    def _staging(self) -> Staging | None:
        """Return free or new pinned buffers; None if pinned memory is exhausted."""
        with contextlib.suppress(IndexError):
            return self._spare_staging.pop()
        try:
            return Staging(self._gpu)
        except CudaError as error:
            if error.code != OUT_OF_MEMORY:
                raise
        return None

    def _padded(self, rows: int) -> int:
        tile = self.work.row_tile
        return -(-rows // tile) * tile

    def _lane(self, rows: int, least: int | None = None) -> Lane:
        """Return a free or new lane for chunks of `rows` rows, or of fewer if memory is short.

        Raises `CudaError` if there is no room for `least` rows.

        `least`: fewest rows; by default, a tile.
        """
        lane = spare_lane(self._spare, rows)
        if lane is not None:
            return lane
        tile = self.work.row_tile
        fewest = (least or tile) // tile
        # Rounded up to a power of two, so that slowly growing calls reuse the lane.
        tiles = max(rows // tile, min(1 << (rows // tile - 1).bit_length(), self._most // tile))
        while True:
            try:
                return Lane(self.work, tiles * tile)
            except CudaError as error:
                if error.code != OUT_OF_MEMORY or tiles <= fewest:
                    raise
            tiles = max(fewest, tiles // 2)
