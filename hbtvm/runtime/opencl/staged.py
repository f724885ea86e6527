"""Stages of kernels on an OpenCL device: the counterpart of `hbtvm.runtime.cuda.execution.staged`.

A chunk of rows goes through all kernels in one queue. Stages' columns stay on the device, laid out as
`hbtvm.runtime.gpu.stages` states, each stage's in a part of one buffer.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence

import numpy as np

from hbtvm.errors import PackageError
from hbtvm.runtime.gpu.launch import GATHER, Scaling
from hbtvm.runtime.gpu.stages import ALIGNED_ROWS, ROWS, Layout, Source
from hbtvm.runtime.opencl.execution import SIZES, DeviceKernel, Starter, TableStore
from hbtvm.runtime.opencl.pairs import BITS
from hbtvm.runtime.opencl.resources import Buffer, Kernel, Queue, SubBuffer

_COUNT, _PADDED = 9, 10  # the gather kernel's arguments that follow the number of rows


class StagedKernels:
    """Kernels that run in sequence; a `hbtvm.runtime.opencl.execution.Work`.

    On a device without float64, kernels that compare keys of rows and others that read pairs get the same
    float64 rows: the gather kernel makes pairs for the latter.

    Raises `PackageError` for a kernel that compares keys of other numbers than float64 rows.

    `kernels`: each stage's kernel, and the columns that it reads of the matrix: first the rows' columns, then
        each stage's. The last kernel computes the scores.
    `n_features`: columns of the rows.
    `dtype`: type of the rows.
    `tables`: copies tables to the device.
    """

    def __init__(
        self,
        kernels: Sequence[tuple[DeviceKernel, Sequence[int]]],
        n_features: int,
        dtype: np.dtype,
        tables: TableStore,
    ) -> None:
        loaded = [kernel for kernel, _ in kernels]
        self.device, self.outputs = loaded[0].device, loaded[-1].outputs
        self.layout = Layout(n_features, dtype == np.float32, [kernel.outputs for kernel in loaded[:-1]])
        self.row_bytes = n_features * dtype.itemsize
        self.row_tile = math.lcm(*(kernel.row_tile for kernel in loaded))
        self.most_rows = min(kernel.most_rows for kernel in loaded)
        for kernel, columns in kernels:
            of_rows = dtype == np.float64 and all(column < n_features for column in columns)
            if kernel.reads_bits and not of_rows:
                raise PackageError(
                    f"{self.device.place} has no float64 (cl_khr_fp64), in which a kernel compares numbers "
                    "that another kernel computes."
                )
        bits = any(kernel.reads_bits for kernel in loaded)
        self.rows_in_pairs = not self.device.doubles and not bits
        self.steps: list[tuple[DeviceKernel, Source, Buffer | None]] = []
        for kernel, columns in kernels:
            narrow, converts = kernel.signature.dtype == "float32", bits and not kernel.reads_bits
            source = self.layout.source(columns, narrow, converts)
            table = None if source.table is None else tables.put(source.table)
            self.steps.append((kernel, source, table))
        gathered = (kernel.signature.row_bytes for kernel, _, table in self.steps if table is not None)
        sums = (kernel.sum_bytes(1) // kernel.row_tile for kernel in loaded)
        self.room_bytes = max(gathered, default=0) + max(sums) + 8 * (self.layout.ahead[-1] + self.outputs)

    def starter(self, scaling: Scaling, rows: Buffer, out: Buffer, capacity: int) -> StagedStarter:
        return StagedStarter(self, scaling, rows, out, capacity)


class StagedStarter:
    """Starts kernels in sequence on one lane's buffers."""

    def __init__(
        self, work: StagedKernels, scaling: Scaling, rows: Buffer, out: Buffer, capacity: int
    ) -> None:
        device, layout = work.device, work.layout
        aligned = max(ALIGNED_ROWS, device.alignment // 8)
        stride = -(-capacity // aligned) * aligned
        columns = Buffer(device, 8 * stride * layout.ahead[-1])
        stages = [
            SubBuffer(columns, 8 * stride * before, 8 * stride * width)
            for before, width in zip(layout.ahead, layout.widths, strict=False)
        ]

        tiles = [capacity // kernel.row_tile for kernel, _, _ in work.steps]
        sizes = [
            kernel.signature.rows.nbytes(tiles=count)
            for (kernel, _, table), count in zip(work.steps, tiles, strict=True)
            if table is not None
        ]
        gathered = Buffer(device, max(sizes, default=0))
        most = max(kernel.sum_bytes(count) for (kernel, _, _), count in zip(work.steps, tiles, strict=True))
        sums = Buffer(device, most)
        self.written = [columns, gathered, sums, out]
        self._queue: list[Callable[[Queue, int], object]] = []
        for (kernel, source, table), into in zip(work.steps, [*stages, out], strict=True):
            if table is not None:
                read = gathered
                buffers = rows, columns, gathered, table
                self._queue.append(_Gather(kernel, source, layout, stride, buffers).queue)
            else:
                read = rows if source.stage == ROWS else stages[source.stage or 0]
            scale = scaling if into is out else kernel.plain
            starter = Starter(kernel, scale, read, None if kernel.direct else sums, into)
            self._queue.append(starter.queue)

    def queue(self, queue: Queue, count: int) -> None:
        """Queue raw scores of `count` rows."""
        for step in self._queue:
            step(queue, count)


class _Gather:
    """Starts the gather kernel of a stage on one lane's buffers.

    `buffers`: the rows, the stages' columns, the gathered rows, and the source's table.
    """

    def __init__(
        self,
        kernel: DeviceKernel,
        source: Source,
        layout: Layout,
        stride: int,
        buffers: tuple[Buffer, Buffer, Buffer, Buffer],
    ) -> None:
        signature = kernel.signature
        self._tile, self._reads, self._count = signature.row_tile, signature.n_features, 0
        narrow = signature.dtype == "float32"
        single = BITS if source.converts else layout.single
        numbers = single, narrow, layout.n_features, stride, self._reads, 0, 0
        self._buffers = buffers  # arguments are handles only
        self._kernel = Kernel(
            kernel.program,
            GATHER,
            [
                *(ctypes.c_uint64(buffer.handle) for buffer in self._buffers),
                *map(ctypes.c_int64, numbers),
            ],
        )

    def queue(self, queue: Queue, count: int) -> None:
        if count != self._count:
            padded = -(-count // self._tile) * self._tile
            self._kernel.set(_COUNT, count)
            self._kernel.set(_PADDED, padded)
            self._sizes, self._count = SIZES(padded * self._reads, 1, 1), count
        queue.start(self._kernel, self._sizes, None)
