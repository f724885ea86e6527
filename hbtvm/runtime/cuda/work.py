"""What an executor runs on chunks of rows: one kernel (`OneKernel`), or several one behind the other."""

from __future__ import annotations

from typing import Protocol

from hbtvm.runtime.cuda.driver import Gpu
from hbtvm.runtime.cuda.kernel import DeviceKernel
from hbtvm.runtime.cuda.memory import Memory


class Room(Protocol):
    """Device memory that a chunk's kernels write to, for one stream at a time.

    Rows are an address of float32 or float64 numbers, shape (count, F), with what `Work` tells of them.
    """

    def sums(self, stream: int | None, rows: int, count: int) -> int:
        """Queue plain sums, without base score or divisor; return their address, in this memory."""

    def raw(self, stream: int | None, rows: int, count: int, out: int, base: int, divisor: float) -> None:
        """Queue raw scores, written to the address `out`, float64 of shape (count, O).

        Parameters
        ----------
        base
            Address of the base score, float64, shape (O,).
        """


class Work(Protocol):
    """Kernels of a model that make scores of rows.

    Attributes
    ----------
    gpu
        The device.
    row_tile, outputs, row_bytes
        Rows of a tile, outputs of a row, and bytes of a row.
    whole_tiles
        Whether rows are read a tile at a time, in place: those that pad the last tile have to be allocated
        and defined, and the address a multiple of `alignment`. Otherwise any rows will do.
    most_rows
        Rows that a chunk can have.
    room_bytes
        Bytes of a room, for each row, its sums by rows included.
    """

    gpu: Gpu
    row_tile: int
    outputs: int
    row_bytes: int
    whole_tiles: bool
    alignment: int
    most_rows: int
    room_bytes: int

    def room(self, capacity: int, stream: int) -> Room:
        """Return memory for `capacity` rows, whole tiles; what has to be defined is so in a stream's order.

        Raises
        ------
        CudaError
            If there is no room.
        """


class OneKernel:
    """A kernel that makes scores by itself; see `Work`."""

    whole_tiles = True

    def __init__(self, kernel: DeviceKernel) -> None:
        self.kernel, self.gpu = kernel, kernel.gpu
        self.row_tile, self.outputs, self.most_rows = kernel.row_tile, kernel.outputs, kernel.most_rows
        signature = kernel.signature
        self.row_bytes, self.alignment = signature.row_bytes, signature.rows.alignment
        self.room_bytes = 8 * kernel.outputs * (signature.parts + 1)

    def room(self, capacity: int, stream: int) -> Room:
        """See `Work.room`."""
        return _KernelRoom(self.kernel, capacity)


class _KernelRoom:
    """Scores as a kernel leaves them, and sums by rows where these are others."""

    def __init__(self, kernel: DeviceKernel, capacity: int) -> None:
        self._kernel = kernel
        signature = kernel.signature
        self._scores = Memory(kernel.gpu, signature.scores.nbytes(tiles=capacity // kernel.row_tile))
        own = signature.needs_epilogue
        self._out = Memory(kernel.gpu, capacity * kernel.outputs * 8) if own else self._scores

    def sums(self, stream: int | None, rows: int, count: int) -> int:
        self._kernel.sums(stream, rows, count, self._scores.handle, self._out.handle)
        return self._out.handle

    def raw(self, stream: int | None, rows: int, count: int, out: int, base: int, divisor: float) -> None:
        kernel, scores = self._kernel, self._scores.handle
        kernel.start(stream, rows, -(-count // kernel.row_tile), scores)
        kernel.finish(stream, scores, out, count, base, divisor)
