"""Compute a few rows with a single kernel launch, which reads and writes pinned host memory.

For some kilobytes, queueing copies takes longer than copying. Here the host writes rows to memory that the
device reads, and the kernel writes scores to memory that the host reads: a call is one launch and one wait.
"""

from __future__ import annotations

import ctypes

import numpy as np

from hbtvm.runtime.cuda.kernel import DeviceKernel
from hbtvm.runtime.cuda.memory import Pinned, Stream
from hbtvm.runtime.gpu.launch import Scaling

MAPPED_BYTES = 1 << 14
"""Most bytes of rows that a kernel reads from the host; copying more is faster than reading them."""

MAPPED_SUMS = 1 << 16
"""Most bytes of scores, all parts included, that a kernel writes to the host; the device adds more."""


def mapped_rows(kernel: DeviceKernel) -> int:
    """Return the most rows that a kernel reads from host memory, in whole tiles; 0 if it can't."""
    signature, tile = kernel.signature, kernel.row_tile
    if signature.scores.dtype != "float64":
        return 0
    # A small tile is always read from the host.
    tiles = max(MAPPED_BYTES // (tile * signature.row_bytes), int(tile == 1))
    tiles = min(tiles, MAPPED_SUMS // signature.scores.nbytes(tiles=1))
    return min(tiles * tile, kernel.most_rows)


class MappedLane:
    """A stream with pinned memory for a few rows and their scores; for one call at a time.

    `kernel`: the kernel; its device must be current.
    `capacity`: rows, whole tiles.
    `poison`: whether to set scores to NaN before each call, so that missing scores show.
    `scaling`, `base`: the conversion of sums to raw scores, and its base scores in host memory, float64,
        shape (O,).
    """

    def __init__(
        self, kernel: DeviceKernel, capacity: int, scaling: Scaling, base: np.ndarray, poison: bool
    ) -> None:
        gpu, signature = kernel.gpu, kernel.signature
        self._kernel, self._gpu, self._tile = kernel, gpu, kernel.row_tile
        tiles = capacity // self._tile
        self._stream = Stream(gpu)
        self._in = Pinned(gpu, capacity * signature.row_bytes)
        self._out = Pinned(gpu, signature.scores.nbytes(tiles=tiles))
        self._scaling, self._base, self._poison = scaling, base, poison
        if kernel.whole_tiles:  # padding rows of a tile are computed, too
            self._in.array[:] = 0
        self._rows = self._in.array.view(signature.dtype).reshape(capacity, signature.n_features)
        scores = self._out.array.view(np.float64)
        parts, outputs = signature.parts, signature.outputs
        self._sums = scores.reshape(tiles, parts, outputs, self._tile)
        self._scores = scores.reshape(capacity, outputs) if kernel.direct else None
        self._starts: dict[int, tuple[object, ...]] = {}
        driver = gpu.driver
        self._start, self._wait = driver.function("cuLaunchKernel"), driver.function("cuStreamSynchronize")
        self._ask, self._context = driver.function("cuCtxGetCurrent"), ctypes.c_void_p()
        self._context_pointer = ctypes.byref(self._context)

    def run(self, X: np.ndarray) -> np.ndarray:
        """Return raw scores of rows, float64, shape (N, O); waits for them.

        Raises `CudaError` if the device fails.
        """
        count = len(X)
        self._rows[:count] = X
        if self._poison:
            self._out.array[:] = 0xFF
        start = self._starts.get(count)
        if start is None:
            launcher = self._kernel.launcher(self._scaling)
            start = self._starts[count] = launcher.arguments(
                self._stream.handle, self._in.device, count, self._out.device
            )
        if self._ask(self._context_pointer) == 0 and self._context.value == self._gpu.context:
            self._compute(start)
        else:
            with self._gpu.current():
                self._compute(start)
        if self._scores is not None:
            scores: np.ndarray = self._scores[:count].copy()
            return scores
        # In order of parts, as the score epilogue adds them.
        tiles = -(-count // self._tile)
        totals = np.add.accumulate(self._sums[:tiles], axis=1)[:, -1]
        by_row: np.ndarray = totals.transpose(0, 2, 1).reshape(tiles * self._tile, -1)[:count]
        scaled: np.ndarray = by_row / self._scaling.divisor + self._base
        return scaled

    def _compute(self, start: tuple[object, ...]) -> None:
        code = self._start(*start)
        if code:
            self._gpu.driver.refuse("cuLaunchKernel", code)
        code = self._wait(self._stream.handle)
        if code:
            self._gpu.driver.refuse("cuStreamSynchronize", code)
