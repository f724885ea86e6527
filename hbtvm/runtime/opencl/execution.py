"""Run a package's kernels on an OpenCL device, on any number of rows.

Rows go to the device in chunks, through two lanes (a queue with buffers each) in turn: while one computes,
the other copies.
"""

from __future__ import annotations

import ctypes
import itertools
import math
import operator
from typing import Any, Protocol

import numpy as np

from hbtvm.errors import PackageError
from hbtvm.runtime.gpu.launch import COUNT, EPILOGUE, Scaling
from hbtvm.runtime.gpu.spare import spare_lane
from hbtvm.runtime.memory import empty
from hbtvm.runtime.opencl import keys, pairs
from hbtvm.runtime.opencl.driver import Device
from hbtvm.runtime.opencl.resources import Buffer, Event, Kernel, Program, Queue
from hbtvm.runtime.package.kernel import KernelEntry
from hbtvm.runtime.package.signature import TILES

_COUNT = 4  # the argument of the score epilogue that is the number of rows

SIZES = ctypes.c_size_t * 3
"""Threads along each axis."""

CHUNK_BYTES = 1 << 25
"""Most bytes of a chunk's rows and scores on the device, unless a single tile takes more."""


class TableStore:
    """Arrays on a device, each copied once for all kernels."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._known: dict[tuple[int, bool], tuple[np.ndarray, Buffer]] = {}

    def put(self, array: np.ndarray, as_keys: bool = False) -> Buffer:
        """Return an array's copy on the device.

        `as_keys`: whether a device without float64 gets keys of float64 numbers rather than pairs.
        """
        name = id(array), as_keys
        if name not in self._known:
            buffer, queue = Buffer(self._device, array.nbytes), Queue(self._device)
            convert = keys.to_keys if as_keys else pairs.to_pairs
            sent = np.ascontiguousarray(array if self._device.doubles else convert(array))
            queue.write(buffer, sent)
            queue.wait()  # `sent` is read until then
            # Keep the array, so that no other array gets its id.
            self._known[name] = array, buffer
        return self._known[name][1]


class Chain(Protocol):
    """Kernels on one lane's buffers, which it starts in sequence."""

    written: list[Buffer]
    """The buffers that they write."""

    def queue(self, queue: Queue, count: int) -> object:
        """Queue raw scores of `count` rows."""


class Work(Protocol):
    """A model's kernels, from rows to scores."""

    device: Device
    # `row_tile`, `outputs`, `row_bytes`: rows of a tile, outputs of a row, and bytes of a row
    row_tile: int
    outputs: int
    row_bytes: int
    most_rows: int  # most rows of a chunk
    room_bytes: int  # bytes of a chain's buffers per row, scores included
    rows_in_pairs: bool  # whether it reads pairs in place of float64 rows

    def starter(self, scaling: Scaling, rows: Buffer, out: Buffer, capacity: int) -> Chain:
        """Return a chain for `capacity` rows, whole tiles.

        Raises `OpenclError` if there is no room.

        `rows`, `out`: buffers of rows, and of raw scores, float64, shape (n, O).
        """


class DeviceKernel:
    """A package's kernel with its tables, compiled for a device; a `Work`.

    Raises `PackageError` if the device can't run it, as one without float64 runs only kernels that can use
    pairs (`hbtvm.runtime.opencl.pairs`), and keys if they compare (`hbtvm.runtime.opencl.keys`). Raises
    `OpenclError` if it has no room for the tables.

    `entry`: the kernel; it has a `launch`.
    `tables`: copies tables to the device.
    `direct`: whether it stores raw scores by rows. Otherwise the score epilogue computes them from sums.
    `plain`: the scaling of plain sums.
    """

    def __init__(self, device: Device, entry: KernelEntry, tables: TableStore) -> None:
        assert entry.launch is not None
        threads = math.prod(entry.launch.block)
        if threads > device.most_threads:
            raise PackageError(
                f"a kernel takes blocks of {threads} threads, and {device.place} has at most "
                f"{device.most_threads}; compile the model for this device."
            )
        if not device.doubles and not pairs.can_use_pairs(entry.library):
            raise PackageError(
                f"{device.place} has no float64 (cl_khr_fp64), in which a kernel for {entry.dtype} rows "
                "compares."
            )
        self.device, self.launch, self.signature = device, entry.launch, entry.signature
        self.row_tile, self.outputs = entry.signature.row_tile, entry.signature.outputs
        self.arrays = entry.tables
        as_keys = keys.arrays_of_keys(entry.library)
        # Whether it reads float64 rows as they are, on a device without float64.
        self.reads_bits = not device.doubles and keys.ROWS in as_keys
        self.rows_in_pairs = not device.doubles and not self.reads_bits
        self.tables = [
            tables.put(table, argument.name in as_keys)
            for argument, table in zip(entry.signature.tables, entry.tables, strict=True)
        ]
        self.program = Program(device, entry.library)
        self._zero = tables.put(np.zeros(self.outputs))
        self.plain = Scaling(self._zero.handle, 0.0, 1.0)
        self.direct = entry.launch.has_bounds and entry.signature.parts == 1
        self.row_bytes, self.most_rows = entry.signature.row_bytes, entry.launch.most_tiles() * self.row_tile
        self.room_bytes = self.sum_bytes(1) // self.row_tile + 8 * self.outputs

    def sum_bytes(self, tiles: int) -> int:
        """Return the bytes of the kernel's sums for the score epilogue."""
        return 0 if self.direct else self.signature.scores.nbytes(tiles=tiles)

    def starter(self, scaling: Scaling, rows: Buffer, out: Buffer, capacity: int) -> Starter:
        sums = None if self.direct else Buffer(self.device, self.sum_bytes(capacity // self.row_tile))
        return Starter(self, scaling, rows, sums, out)


class Starter:
    """Starts a kernel and its score epilogue on one lane's buffers.

    `rows`, `sums`, `out`: buffers of rows, of sums, and of raw scores, float64, shape (n, O).
    """

    def __init__(
        self, kernel: DeviceKernel, scaling: Scaling, rows: Buffer, sums: Buffer | None, out: Buffer
    ) -> None:
        self._kernel, launch = kernel, kernel.launch
        self._rows = rows  # arguments are handles only
        self.written = [out] if sums is None else [out, sums]
        into = out if sums is None else sums
        handles = [rows.handle, *(table.handle for table in kernel.tables), into.handle]
        shapes = kernel.signature.shapes(kernel.arrays, 0)
        values = launch.values(handles, shapes, 0, scaling)
        divisor: Any = ctypes.c_double(scaling.divisor)
        if not kernel.device.doubles:
            values, divisor = list(map(pairs.argument, values)), pairs.argument(divisor)
        self._main = Kernel(kernel.program, launch.function, values)
        arguments = kernel.signature.arguments
        self._follow = [
            isinstance(size, tuple) and arguments[size[0]].shape[size[1]] == TILES
            for size in launch.arguments
        ]
        self._count, self._block = 0, SIZES(*launch.block)
        self._finish: Kernel | None = None
        if sums is not None:
            self._finish = Kernel(
                kernel.program,
                EPILOGUE,
                [
                    *(ctypes.c_uint64(handle) for handle in (sums.handle, out.handle, scaling.base)),
                    divisor,
                    *(ctypes.c_int64(number) for number in (0, kernel.outputs, kernel.row_tile)),
                ],
            )

    def queue(self, queue: Queue, count: int, timed: bool = False) -> tuple[Event | None, Event | None]:
        """Queue raw scores of `count` rows; return the first and the last kernel's event if timed."""
        if count != self._count:
            self._prepare(count)
        first = last = queue.start(self._main, self._sizes, self._block, timed)
        if self._finish is not None:
            last = queue.start(self._finish, self._each, None, timed)
        return first, last

    def _prepare(self, count: int) -> None:
        """Set the arguments for a number of rows."""
        kernel, launch = self._kernel, self._kernel.launch
        tiles = -(-count // kernel.row_tile)
        for at, argument in enumerate(launch.arguments):
            if self._follow[at] or argument == COUNT:
                self._main.set(at, tiles if self._follow[at] else count)
        blocks = launch.blocks(kernel.signature.shapes(kernel.arrays, tiles))
        self._sizes = SIZES(*map(operator.mul, blocks, launch.block))
        if self._finish is not None:
            self._finish.set(_COUNT, count)
            self._each = SIZES(count * kernel.outputs, 1, 1)
        self._count = count


class _Lane:
    """A queue with memory for a chunk of rows and its scores.

    `capacity`: rows of a chunk, whole tiles.
    """

    def __init__(self, work: Work, scaling: Scaling, capacity: int, poison: bool) -> None:
        device = work.device
        self.capacity, self.queue, self._poison = capacity, Queue(device), poison
        self._pairs = work.rows_in_pairs
        self._rows = Buffer(device, capacity * work.row_bytes)
        self._out = Buffer(device, 8 * capacity * work.outputs)
        self._chain = work.starter(scaling, self._rows, self._out, capacity)
        self.queue.fill(self._rows, 0)  # the last tile's padding rows may be computed

    def begin(self, X: np.ndarray, out: np.ndarray) -> None:
        """Queue a chunk's copies and kernels."""
        self._sent = pairs.to_pairs(X) if self._pairs else X  # until they are on the device
        self.queue.write(self._rows, self._sent)
        if self._poison:
            for buffer in self._chain.written:
                self.queue.fill(buffer, 0xFF)
        self._chain.queue(self.queue, len(X))
        self.queue.read(out, self._out)
        self.queue.flush()


class DeviceExecutor:
    """Kernels with their tables on a device; safe to call from several threads at once.

    A free list holds the unused lanes.

    `base`, `divisor`: raw scores are sums / divisor + base; base is float64, shape (O,).
    `poison`: whether to set scores to NaN before each call, so that missing scores show.
    """

    def __init__(self, work: Work, base: np.ndarray, divisor: float, poison: bool = False) -> None:
        self._work, self._poison = work, poison
        self._base = TableStore(work.device).put(np.ascontiguousarray(base, np.float64))
        self._scaling = Scaling(self._base.handle, float(base[0]), divisor)
        rows = min(CHUNK_BYTES, work.device.most_allocated) // (work.row_bytes + work.room_bytes)
        self._most = max(work.row_tile, min(rows, work.most_rows) // work.row_tile * work.row_tile)
        self._spare: list[_Lane] = []

    def run(self, X: np.ndarray) -> np.ndarray:
        """Return raw scores of rows, float64, shape (N, O).

        Raises `DeviceError` if the device has no room for a single tile, or fails.

        `X`: shape (N, F), C-contiguous, native byte order, of the kernel's type.
        """
        out, tile = empty((len(X), self._work.outputs), np.float64), self._work.row_tile
        size = min(-(-len(X) // tile) * tile, self._most)
        starts = range(0, len(X), size)
        lanes = [self._lane(size) for _ in starts[:2]]
        try:
            for start, lane in zip(starts, itertools.cycle(lanes), strict=False):
                lane.queue.wait()
                lane.begin(X[start : start + size], out[start : start + size])
        finally:
            for lane in lanes:  # the caller's rows may be released after an error, too
                lane.queue.wait()
        self._spare += lanes
        if not self._work.device.doubles:
            pairs.from_pairs(out)
        return out

    def _lane(self, rows: int) -> _Lane:
        """Return a free or new lane for chunks of `rows` rows."""
        lane = spare_lane(self._spare, rows)
        if lane is not None:
            return lane
        tile = self._work.row_tile
        # Rounded up to a power of two, so that slowly growing calls reuse the lane.
        tiles = min(1 << (rows // tile - 1).bit_length(), self._most // tile)
        return _Lane(self._work, self._scaling, tiles * tile, self._poison)
