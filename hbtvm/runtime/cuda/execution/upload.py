"""Copy rows from the host to a device, chunk by chunk.

For a copy from pageable memory, the driver first copies the rows to its pinned memory with one thread (6 to
10 GB/s), and queues nothing else meanwhile. Large batches therefore go through pinned buffers that several
threads fill, while the device copies the other buffers and computes the previous chunk. Each thread does
this, with two buffers in turn::

    piece = todo.get()                  # rows whose place on the device may be overwritten
    wait until the device has copied the buffer
    fill the buffer                     # numpy releases the interpreter's lock
    queue its copy to the device
    done.put(piece)                     # after a chunk's last piece, its kernels are queued

The driver copies small batches, for which no thread has to start.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from queue import SimpleQueue

import numpy as np

from hbtvm.runtime.cuda.driver import Gpu
from hbtvm.runtime.cuda.memory import Event, Memory, Pinned, Stream

Place = tuple[Memory, Stream]

PIECE_BYTES = 1 << 22  # bytes of a pinned buffer: enough for copies at full speed
THREADS = 2  # threads that fill buffers; a single thread is as fast as the driver
_BUFFERS = 2  # buffers of each thread: one is filled while the device reads the other

LEAST_BYTES = 2 * PIECE_BYTES
"""Fewest bytes for which starting threads pays; the driver copies less."""


class Staging:
    """Pinned buffers for one upload at a time.

    Raises `CudaError` if pinned memory is exhausted.
    """

    def __init__(self, gpu: Gpu) -> None:
        self.size = PIECE_BYTES
        self.buffers = [[_Buffer(gpu, self.size) for _ in range(_BUFFERS)] for _ in range(THREADS)]


class _Buffer:
    """Pinned memory, and the event of its last copy to the device."""

    def __init__(self, gpu: Gpu, size: int) -> None:
        self._memory, self._copied = Pinned(gpu, size), Event(gpu)

    def send(self, rows: np.ndarray, to: int, stream: int) -> None:
        """Queue a copy of bytes to the device, after this buffer's previous copy."""
        self._copied.wait()
        self._memory.array[: len(rows)] = rows
        driver = self._memory.gpu.driver
        driver.call("cuMemcpyHtoDAsync_v2", to, self._memory.handle, len(rows), stream)
        self._copied.record(stream)


class Upload:
    """Copies chunks of rows to a device in order, directly from the host's memory.

    `gpu`: the device; it must be current.
    `X`: C-contiguous.
    `rows`: rows of a chunk; the last one may have fewer.
    `places`: memory for a chunk on the device, and the stream of its copies and kernels; chunks alternate
        between them.
    """

    def __init__(self, gpu: Gpu, X: np.ndarray, rows: int, places: Sequence[Place]) -> None:
        self._gpu, self._places = gpu, places
        self._bytes = X.reshape(-1).view(np.uint8)
        self._chunk = rows * X[:1].nbytes

    def sent(self, chunk: int) -> None:
        """Wait until a chunk's copy is queued; called for each chunk once, in order."""
        memory, stream = self._places[chunk % len(self._places)]
        rows, driver = self._part(chunk), self._gpu.driver
        driver.call("cuMemcpyHtoDAsync_v2", memory.handle, rows.ctypes.data, len(rows), stream.handle)

    def used(self, chunk: int) -> None:
        """Mark a chunk's work as queued, so that another chunk may be copied to its place."""

    def _part(self, chunk: int) -> np.ndarray:
        return self._bytes[chunk * self._chunk : (chunk + 1) * self._chunk]


class PinnedUpload(Upload):
    """Copies rows through pinned buffers; a context manager whose exit ends its threads.

    `sent` raises errors of threads. Threads end after their current piece; they hold references to the memory
    that they use, so that it outlives a call that a second Ctrl-C ended.

    `gpu`, `X`, `rows`, `places`: as of `Upload`.
    """

    def __init__(self, gpu: Gpu, X: np.ndarray, rows: int, places: Sequence[Place], staging: Staging) -> None:
        super().__init__(gpu, X, rows, places)
        self._size = staging.size
        # Queues, because Ctrl-C while taking another of Python's locks can leave it locked.
        self._todo: SimpleQueue[tuple[int, np.ndarray, int, Stream] | None] = SimpleQueue()
        self._done: SimpleQueue[int | BaseException] = SimpleQueue()
        self._missing: dict[int, int] = {}
        self._stopped = False
        self._threads = [
            threading.Thread(target=self._work, args=(buffers,), name="hbtvm-upload")
            for buffers in staging.buffers
        ]

    def __enter__(self) -> PinnedUpload:
        try:
            for chunk in range(len(self._places)):
                self._hand_out(chunk)
            for thread in self._threads:
                thread.start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def sent(self, chunk: int) -> None:
        while self._missing[chunk]:
            done = self._done.get()
            if isinstance(done, BaseException):
                raise done
            self._missing[done] -= 1
        del self._missing[chunk]

    def used(self, chunk: int) -> None:
        self._hand_out(chunk + len(self._places))

    def _hand_out(self, chunk: int) -> None:
        """Hand a chunk's pieces to the threads."""
        part = self._part(chunk)
        memory, stream = self._places[chunk % len(self._places)]
        starts = range(0, len(part), self._size)
        self._missing[chunk] = len(starts)
        for start in starts:
            self._todo.put((chunk, part[start : start + self._size], memory.handle + start, stream))

    def _work(self, buffers: Sequence[_Buffer]) -> None:
        """Copy pieces until none is left."""
        try:
            with self._gpu.current():
                turn = 0
                while (piece := self._todo.get()) is not None and not self._stopped:
                    chunk, rows, address, stream = piece
                    buffers[turn % len(buffers)].send(rows, address, stream.handle)
                    turn += 1
                    self._done.put(chunk)
        except BaseException as error:
            self._done.put(error)

    def _stop(self) -> None:
        """End the threads and wait for them."""
        self._stopped = True
        for _ in self._threads:
            self._todo.put(None)
        for thread in self._threads:
            if thread.is_alive():
                thread.join()
