"""Rows from the host to a device, chunk by chunk.

A copy from pageable memory returns once the driver has copied the rows to pinned memory of its own, which it
does with one thread (6 to 10 GB/s), while nothing else is queued. So many rows go through pinned buffers of
our own, which threads fill: meanwhile the device copies what is in the other buffers, and computes the chunk
before. Each thread does this, with two buffers in turn::

    piece = todo.get()                  # of rows whose place on the device may be overwritten
    wait until the device has copied what the buffer held
    fill the buffer                     # numpy releases the interpreter's lock
    queue its copy to the device
    done.put(piece)                     # once all of a chunk's are, its kernels are queued

Few rows are left to the driver, for which no thread has to be started.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from queue import SimpleQueue

import numpy as np

from hbtvm.runtime.cuda.driver import Gpu
from hbtvm.runtime.cuda.memory import Event, Memory, Pinned, Stream

Place = tuple[Memory, Stream]

PIECE_BYTES = 1 << 22  # bytes of a pinned buffer: enough that a copy to the device runs at full speed
THREADS = 2  # threads that fill buffers. One copies as fast as the driver does; a bus takes what a few copy.
_BUFFERS = 2  # buffers of each thread: one is filled while the device reads the other

LEAST_BYTES = 2 * PIECE_BYTES
"""Rows of fewer bytes are left to the driver: threads would take about as long to start as they save."""


class Staging:
    """Pinned buffers for one upload at a time.

    Raises `CudaError` if there is no pinned memory left.
    """

    def __init__(self, gpu: Gpu) -> None:
        self.size = PIECE_BYTES
        self.buffers = [[_Buffer(gpu, self.size) for _ in range(_BUFFERS)] for _ in range(THREADS)]


class _Buffer:
    """Pinned memory, and the event of its last copy to the device."""

    def __init__(self, gpu: Gpu, size: int) -> None:
        self._memory, self._copied = Pinned(gpu, size), Event(gpu)

    def send(self, rows: np.ndarray, to: int, stream: int) -> None:
        """Queue a copy of some bytes to the device, after the last one that was sent from here."""
        self._copied.wait()
        self._memory.array[: len(rows)] = rows
        driver = self._memory.gpu.driver
        driver.call("cuMemcpyHtoDAsync_v2", to, self._memory.handle, len(rows), stream)
        self._copied.record(stream)


class Upload:
    """Copies chunks of rows to a device, one after the other, as they lie in the host's memory.

    `gpu`: the device, current in the thread that uses this.
    `X`: C-contiguous.
    `rows`: rows of a chunk; the last one may have fewer.
    `places`: memory for a chunk on the device, and the stream of its copies and kernels; chunks take them in
        turns.
    """

    def __init__(self, gpu: Gpu, X: np.ndarray, rows: int, places: Sequence[Place]) -> None:
        self._gpu, self._places = gpu, places
        self._bytes = X.reshape(-1).view(np.uint8)
        self._chunk = rows * X[:1].nbytes

    def sent(self, chunk: int) -> None:
        """Return when a chunk's copy is queued. Chunks are asked for in order, each once."""
        memory, stream = self._places[chunk % len(self._places)]
        rows, driver = self._part(chunk), self._gpu.driver
        driver.call("cuMemcpyHtoDAsync_v2", memory.handle, rows.ctypes.data, len(rows), stream.handle)

    def used(self, chunk: int) -> None:
        """Say that all work is queued that reads a chunk, so that another one may be copied to its place."""

    def _part(self, chunk: int) -> np.ndarray:
        return self._bytes[chunk * self._chunk : (chunk + 1) * self._chunk]


class PinnedUpload(Upload):
    """Copies rows through pinned buffers; a context, with which its threads end.

    An error of a thread is raised by `sent`. Threads end after the piece that they copy; what they use is
    referenced by them, so that it outlives a call that a second Ctrl-C ended, too.

    `gpu`, `X`, `rows`, `places`: as of `Upload`.
    """

    def __init__(self, gpu: Gpu, X: np.ndarray, rows: int, places: Sequence[Place], staging: Staging) -> None:
        super().__init__(gpu, X, rows, places)
        self._size = staging.size
        # Queues, since other locks of Python's can stay locked if Ctrl-C comes while they are taken.
        self._todo: SimpleQueue[tuple[int, np.ndarray, int, Stream] | None] = SimpleQueue()
        self._done: SimpleQueue[int | BaseException] = SimpleQueue()
        self._missing: dict[int, int] = {}
        self._stopped = False
        self._threads = [
            threading.Thread(target=self._work, args=(own,), name="hbtvm-upload") for own in staging.buffers
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
        """Have a chunk copied to its place, piece by piece."""
        part = self._part(chunk)
        memory, stream = self._places[chunk % len(self._places)]
        starts = range(0, len(part), self._size)
        self._missing[chunk] = len(starts)
        for start in starts:
            self._todo.put((chunk, part[start : start + self._size], memory.handle + start, stream))

    def _work(self, buffers: Sequence[_Buffer]) -> None:
        """Copy pieces, until there is no other one."""
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
        """End the threads, and wait for them."""
        self._stopped = True
        for _ in self._threads:
            self._todo.put(None)
        for thread in self._threads:
            if thread.is_alive():
                thread.join()
