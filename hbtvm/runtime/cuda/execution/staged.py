"""Stages of kernels on a GPU: the counterpart of ``hbtvm/native/executor/stages.c``.

A chunk of rows goes through all kernels in one stream. Stages' columns stay on the device, laid out as
`hbtvm.runtime.gpu.stages` states.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hbtvm.runtime.cuda.execution.work import Room
from hbtvm.runtime.cuda.kernel import DeviceKernel
from hbtvm.runtime.cuda.memory import Memory
from hbtvm.runtime.gpu.launch import GATHER, GATHER_THREADS, Scaling, pointers
from hbtvm.runtime.gpu.stages import ALIGNED_ROWS, ROWS, Layout


@dataclass(frozen=True)
class _Step:
    """A kernel and the source of its rows."""

    kernel: DeviceKernel
    source: int | None  # the source that is read in place; None if columns are gathered
    # `gather`, `columns`: the gather kernel, and its table of columns on the device; 0 and None without one
    gather: int
    columns: Memory | None


class StagedKernels:
    """Kernels that run in sequence; a `Work`.

    `kernels`: each stage's kernel, and the columns that it reads of the matrix: first the rows' columns, then
        each stage's. The last kernel computes the scores. The device must be current.
    `n_features`: columns of the rows.
    `dtype`: type of the rows.
    """

    def __init__(
        self, kernels: Sequence[tuple[DeviceKernel, Sequence[int]]], n_features: int, dtype: np.dtype
    ) -> None:
        loaded = [kernel for kernel, _ in kernels]
        self.gpu, self.outputs = loaded[0].gpu, loaded[-1].outputs
        self.layout = Layout(n_features, dtype == np.float32, [kernel.outputs for kernel in loaded[:-1]])
        self.row_bytes = n_features * dtype.itemsize
        self.row_tile = math.lcm(*(kernel.row_tile for kernel in loaded))
        self.most_rows = min(kernel.most_rows for kernel in loaded)
        self.steps = [self._step(kernel, columns) for kernel, columns in kernels]
        in_place = [step.kernel for step in self.steps if step.source == ROWS]
        self.whole_tiles = any(kernel.whole_tiles for kernel in in_place)
        self.alignment = max((kernel.signature.rows.alignment for kernel in in_place), default=1)
        gathered = (step.kernel.signature.row_bytes for step in self.steps if step.columns is not None)
        self.room_bytes = (
            max(gathered, default=0)
            + max(kernel.sum_bytes(kernel.row_tile) // kernel.row_tile for kernel in loaded)
            + 8 * (self.layout.ahead[-1] + self.outputs)
        )

    def _step(self, kernel: DeviceKernel, columns: Sequence[int]) -> _Step:
        source = self.layout.source(columns, kernel.signature.dtype == "float32")
        if source.table is None:
            return _Step(kernel, source.stage, 0, None)
        return _Step(kernel, None, kernel.function(GATHER), Memory.of(self.gpu, source.table))

    def room(self, capacity: int, stream: int) -> Room:
        return _StagedRoom(self, capacity, stream)


class _StagedRoom:
    """Gathered rows, the running kernel's sums, each stage's columns, and raw scores."""

    def __init__(self, work: StagedKernels, capacity: int, stream: int) -> None:
        self._work = work
        gpu, steps = work.gpu, work.steps
        self._launchers = [step.kernel.launcher(step.kernel.plain) for step in steps]

        def tiles(step: _Step) -> int:
            return capacity // step.kernel.row_tile

        gathering = [step for step in steps if step.columns is not None]
        gathered = (step.kernel.signature.rows.nbytes(tiles=tiles(step)) for step in gathering)
        self._gathered = Memory(gpu, max(gathered, default=0))
        self._kept = Memory(gpu, max(step.kernel.sum_bytes(capacity) for step in steps))
        self._stride = -(-capacity // ALIGNED_ROWS) * ALIGNED_ROWS
        self._stage_columns = Memory(gpu, 8 * self._stride * work.layout.ahead[-1])
        self._out = Memory(gpu, 8 * capacity * work.outputs)
        # A kernel of whole tiles that reads a stage's columns in place also computes the padding rows.
        gpu.driver.call("cuMemsetD8Async", self._stage_columns.handle, 0, self._stage_columns.size, stream)

    def scores(self, stream: int | None, rows: int, count: int, out: int | None, scaling: Scaling) -> int:
        into = self._out.handle if out is None else out
        *stages, last = self._work.steps
        for at, step in enumerate(stages):
            address = self._rows(step, stream, rows, count)
            self._launchers[at].queue(stream, address, count, self._kept.handle, self._columns(at))
        address = self._rows(last, stream, rows, count)
        if self._launchers[-1].scaling is not scaling:
            self._launchers[-1] = last.kernel.launcher(scaling)
        self._launchers[-1].queue(stream, address, count, self._kept.handle, into)
        return into

    def _columns(self, stage: int) -> int:
        """Return the address of a stage's columns."""
        return self._stage_columns.handle + 8 * self._work.layout.ahead[stage] * self._stride

    def _rows(self, step: _Step, stream: int | None, rows: int, count: int) -> int:
        """Queue the gathering of a kernel's rows if needed; return their address."""
        if step.columns is None or step.source is not None:
            return rows if step.source == ROWS else self._columns(step.source or 0)
        work, signature = self._work, step.kernel.signature
        padded, reads = -(-count // signature.row_tile) * signature.row_tile, signature.n_features
        values = (
            *map(
                ctypes.c_uint64,
                (rows, self._stage_columns.handle, self._gathered.handle, step.columns.handle),
            ),
            *map(
                ctypes.c_int64,
                (
                    work.layout.single,
                    signature.dtype == "float32",
                    work.layout.n_features,
                    self._stride,
                    reads,
                    count,
                    padded,
                ),
            ),
        )
        blocks = -(-padded * reads // GATHER_THREADS)
        sizes = (blocks, 1, 1, GATHER_THREADS, 1, 1, 0)
        work.gpu.driver.call("cuLaunchKernel", step.gather, *sizes, stream, pointers(values), None)
        return self._gathered.handle
