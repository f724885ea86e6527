"""A package's kernel on a GPU, with its tables."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hbtvm.errors import PackageError
from hbtvm.runtime.cuda.compatibility import unreadable_code
from hbtvm.runtime.cuda.driver import NOT_FOUND, CudaError, Gpu
from hbtvm.runtime.cuda.launcher import Launcher
from hbtvm.runtime.cuda.memory import Memory, Module
from hbtvm.runtime.gpu.launch import EPILOGUE, Scaling
from hbtvm.runtime.package.file import KernelEntry

OLDEST_PORTABLE = (7, 5)
"""The oldest architecture for which packages hold portable code (`compiler.cuda.PORTABLE`)."""


def check_gpu(gpu: Gpu, arch: str) -> None:
    """Check that a device can run code that was compiled for an architecture.

    Raises `PackageError` if the device is older than the code and the portable code.
    """
    number = arch.removeprefix("sm_").rstrip("af")
    tuned = int(number[:-1]), int(number[-1])
    if gpu.capability < OLDEST_PORTABLE and gpu.capability != tuned:
        oldest = "sm_{}{}".format(*OLDEST_PORTABLE)
        raise PackageError(
            f"the model was compiled for {arch}, and runs on GPUs from {oldest} on, but cuda:{gpu.index} is "
            f"a {gpu.name} ({gpu.arch}); compile it again with "
            f'--target \'{{"kind": "cuda", "arch": "{gpu.arch}"}}\' and a CUDA toolkit that knows it.'
        )


class TableStore:
    """Tables on a device, each copied once for all kernels."""

    def __init__(self, gpu: Gpu) -> None:
        self._gpu = gpu
        self._known: dict[int, tuple[np.ndarray, Memory]] = {}

    def put(self, table: np.ndarray) -> Memory:
        """Return a table's copy on the device."""
        # Keep the array, so that no other array gets its id.
        if id(table) not in self._known:
            self._known[id(table)] = table, Memory.of(self._gpu, np.ascontiguousarray(table))
        return self._known[id(table)][1]


class DeviceKernel:
    """A kernel, ready to launch.

    Raises `PackageError` if the device can't run the code.

    `gpu`: the device; it must be current.
    `entry`: the kernel; it has a `launch`.
    `put`: copies a table to the device.
    `toolkit`: version of the CUDA toolkit that compiled it, for errors.
    `signature`, `launch`, `function_handle`: its arguments, its launch, and its handle.
    `row_tile`, `outputs`: rows of a tile, and outputs of a row.
    `whole_tiles`: whether it reads and stores whole tiles, so that padding rows of the last tile must be
        allocated and defined. Kernels without bounds do (see `Launch.has_bounds`).
    `direct`: whether it stores raw scores by rows. Otherwise the score epilogue computes them from sums.
    `plain`: the scaling of plain sums.
    """

    def __init__(
        self, gpu: Gpu, entry: KernelEntry, put: Callable[[np.ndarray], Memory], toolkit: str = ""
    ) -> None:
        assert entry.launch is not None
        self.gpu, self.launch = gpu, entry.launch
        self.signature = entry.signature
        self.row_tile, self.outputs = entry.signature.row_tile, entry.signature.outputs
        self._tables = [put(table) for table in entry.tables]
        self._arrays = entry.tables
        self.whole_tiles = not entry.launch.has_bounds
        self.direct = not self.whole_tiles and entry.signature.parts == 1
        self._zero = Memory.of(gpu, np.zeros(self.outputs))
        self.plain = Scaling(self._zero.handle, 0.0, 1.0)
        try:
            self._module = Module(gpu, entry.library)
            launch = entry.launch
            self.function_handle = gpu.function(
                self._module.handle, launch.function, launch.shared, launch.carveout
            )
            self._finish = gpu.function(self._module.handle, EPILOGUE)
        except CudaError as error:
            if not error.unreadable:
                raise
            raise unreadable_code(gpu, toolkit, error) from None

    def optional_function(self, name: str) -> int:
        """Return another kernel of the module; 0 if the release that compiled it had none."""
        try:
            return self.function(name)
        except CudaError as error:
            if error.code != NOT_FOUND:
                raise
        return 0

    def function(self, name: str) -> int:
        """Return another kernel of the module, such as `hbtvm.runtime.gpu.launch.GATHER`."""
        return self.gpu.function(self._module.handle, name)

    @property
    def most_rows(self) -> int:
        """Most rows of a launch."""
        return self.launch.most_tiles() * self.row_tile

    def sum_bytes(self, rows: int) -> int:
        """Return the bytes of the kernel's sums for the score epilogue, for `rows` rows in whole tiles."""
        return 0 if self.direct else self.signature.scores.nbytes(tiles=rows // self.row_tile)

    def launcher(self, scaling: Scaling) -> Launcher:
        """Return a launcher, which converts sums to raw scores."""
        return Launcher(self, scaling, 0 if self.direct else self._finish)

    def shapes(self, tiles: int) -> list[tuple[int, ...]]:
        """Return the shapes of its arrays for a number of row tiles."""
        return self.signature.shapes(self._arrays, tiles)

    def addresses(self, rows: int, scores: int) -> list[int]:
        """Return the addresses of its arrays from those of rows and scores."""
        return [rows, *(table.handle for table in self._tables), scores]
