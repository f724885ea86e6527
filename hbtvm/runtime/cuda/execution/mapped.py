"""A few rows by one start of a kernel: it reads and writes pinned memory of the host by itself.

For some kilobytes, queueing copies takes longer than what they move. So rows are written where the device
reads them, and the kernel leaves its scores where the host does: what is left of a call is one start, and
the wait for it.
"""

from __future__ import annotations

import ctypes

import numpy as np

from hbtvm.runtime.cuda.kernel import DeviceKernel
from hbtvm.runtime.cuda.launch import Scaling
from hbtvm.runtime.cuda.memory import Pinned, Stream

MAPPED_BYTES = 1 << 14
"""Bytes of rows up to which a kernel reads them from the host: more are copied faster than they are read."""


def mapped_rows(kernel: DeviceKernel) -> int:
    """Return how many rows a kernel takes from the host's memory, whole tiles; 0 if it can't."""
    signature, tile = kernel.signature, kernel.row_tile
    if signature.scores.dtype != "float64":
        return 0
    # A tile that is about one row's is read in any case.
    tiles = max(MAPPED_BYTES // (tile * signature.row_bytes), int(tile == 1))
    return min(tiles * tile, kernel.most_rows)


class MappedLane:
    """A stream with pinned memory for a few rows and their scores; for one call at a time.

    `kernel`: the kernel; its device is current while this is made.
    `capacity`: rows, whole tiles.
    `poison`: whether memory for scores is NaN before each call, so that what the kernel leaves out shows.
    `scaling`, `base`: what makes raw scores of sums, and its base scores in the host's memory, float64, shape
        (O,).
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
        if kernel.whole_tiles:  # rows that pad a tile are computed, too
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
        self._asked = ctypes.byref(self._context)

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
            start = self._starts[count] = self._kernel.laid_out(
                self._stream.handle, self._in.device, count, self._out.device, self._scaling
            )
        if self._ask(self._asked) == 0 and self._context.value == self._gpu.context:
            self._compute(start)
        else:
            with self._gpu.current():
                self._compute(start)
        if self._scores is not None:
            scores: np.ndarray = self._scores[:count].copy()
            return scores
        # One part behind the other, as the score epilogue adds them.
        tiles = -(-count // self._tile)
        found = np.add.accumulate(self._sums[:tiles], axis=1)[:, -1]
        by_row: np.ndarray = found.transpose(0, 2, 1).reshape(tiles * self._tile, -1)[:count]
        scaled: np.ndarray = by_row / self._scaling.divisor + self._base
        return scaled

    def _compute(self, start: tuple[object, ...]) -> None:
        code = self._start(*start)
        if code:
            self._gpu.driver.refuse("cuLaunchKernel", code)
        code = self._wait(self._stream.handle)
        if code:
            self._gpu.driver.refuse("cuStreamSynchronize", code)
