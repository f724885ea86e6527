"""An executor's work on chunks of rows: a single kernel (`OneKernel`), or several in sequence."""

from __future__ import annotations

from typing import Protocol

from hbtvm.runtime.cuda.driver import Gpu
from hbtvm.runtime.cuda.kernel import DeviceKernel
from hbtvm.runtime.cuda.launcher import Launcher
from hbtvm.runtime.cuda.memory import Memory
from hbtvm.runtime.gpu.launch import Scaling


class Room(Protocol):
    """Device memory that a chunk's kernels write to, for one stream at a time.

    Rows are an address of float32 or float64 numbers, shape (count, F), laid out as `Work` states.
    """

    def scores(self, stream: int | None, rows: int, count: int, out: int | None, scaling: Scaling) -> int:
        """Queue raw scores.

        `out`: address to write them to, float64, shape (count, O); None for this memory.
        """


class Work(Protocol):
    """A model's kernels, from rows to scores."""

    gpu: Gpu
    # `row_tile`, `outputs`, `row_bytes`: rows of a tile, outputs of a row, and bytes of a row
    row_tile: int
    outputs: int
    row_bytes: int
    # Whether kernels read whole tiles, so that padding rows of the last tile must be allocated and defined
    whole_tiles: bool
    alignment: int  # the address of rows must be a multiple of this many bytes
    most_rows: int  # most rows of a chunk
    room_bytes: int  # bytes of a room per row, scores included

    def room(self, capacity: int, stream: int) -> Room:
        """Return memory for `capacity` rows, whole tiles; a stream initializes it where needed.

        Raises `CudaError` if there is no room.
        """


class OneKernel:
    """A single kernel; see `Work`.

    `poison`: whether to set scores to NaN before each call, so that missing scores show.
    """

    def __init__(self, kernel: DeviceKernel, poison: bool = False) -> None:
        self.poison = poison
        self.kernel, self.gpu = kernel, kernel.gpu
        self.row_tile, self.outputs, self.most_rows = kernel.row_tile, kernel.outputs, kernel.most_rows
        signature = kernel.signature
        self.row_bytes, self.alignment = signature.row_bytes, signature.rows.alignment
        self.whole_tiles = kernel.whole_tiles
        self.room_bytes = kernel.sum_bytes(kernel.row_tile) // kernel.row_tile + 8 * kernel.outputs

    def room(self, capacity: int, stream: int) -> Room:
        return _KernelRoom(self.kernel, capacity, self.poison)


class _KernelRoom:
    """A kernel's sums for the score epilogue, and raw scores."""

    def __init__(self, kernel: DeviceKernel, capacity: int, poison: bool) -> None:
        self._kernel, self._poison = kernel, poison
        self._launcher: Launcher | None = None
        self._sums = Memory(kernel.gpu, kernel.sum_bytes(capacity))
        self._out = Memory(kernel.gpu, capacity * kernel.outputs * 8)

    def scores(self, stream: int | None, rows: int, count: int, out: int | None, scaling: Scaling) -> int:
        into = self._out.handle if out is None else out
        if self._poison:
            for at, size in ((self._sums.handle, self._sums.size), (into, 8 * count * self._kernel.outputs)):
                self._kernel.gpu.driver.call("cuMemsetD8Async", at, 0xFF, size, stream)
        if self._launcher is None or self._launcher.scaling is not scaling:
            self._launcher = self._kernel.launcher(scaling)
        self._launcher.queue(stream, rows, count, self._sums.handle, into)
        return into
