"""A package's kernels on an OpenCL device, for rows in host memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from hbtvm.errors import DeviceError, InputError, PackageError
from hbtvm.runtime.gpu.host_rows import DeviceKernelSet, HostRows
from hbtvm.runtime.gpu.stages import Steps, steps_of
from hbtvm.runtime.opencl import driver, pairs
from hbtvm.runtime.opencl.execution import DeviceExecutor, DeviceKernel, TableStore
from hbtvm.runtime.opencl.staged import StagedKernels
from hbtvm.runtime.package.entry import Package


class OpenclModel(HostRows[DeviceExecutor]):
    """All kernels of a package, on one device.

    Raises `PackageError` if this machine can't run them. Raises `DeviceError` if the device has too little
    memory.

    `package`: a package for OpenCL.
    `device`: the device's number.
    """

    def __init__(self, package: Package, device: int) -> None:
        super().__init__()
        try:
            here = driver.device(device)
        except driver.OpenclError:
            raise
        except DeviceError as error:
            raise PackageError(f"the model was compiled for OpenCL, but {error}") from None
        self._place = here.place
        base, divisor = np.array(package.forest["base_score"], np.float64), float(package.forest["divisor"])
        tables = TableStore(here)
        if not here.doubles and not package.stages:
            narrow = [entry for entry in package.kernels if pairs.can_use_pairs(entry.library)]
            package = replace(package, kernels=tuple(narrow or package.kernels))
        loaded = {id(entry): DeviceKernel(here, entry, tables) for entry in package.all_kernels}

        def executor(steps: Steps, dtype: np.dtype) -> DeviceExecutor:
            kernels = [(loaded[id(entry)], columns) for entry, columns in steps]
            work = StagedKernels(kernels, package.n_read, dtype, tables) if kernels[1:] else kernels[0][0]
            return DeviceExecutor(work, base, divisor)

        self.kernels = {}
        self._refused: dict[np.dtype, PackageError] = {}
        for dtype, sequences in steps_of(package).items():
            try:
                executors = [executor(steps, dtype) for _, steps in sequences]
            except PackageError as error:  # for rows of the other type, the device may run kernels
                self._refused[dtype] = error
                continue
            self.kernels[dtype] = DeviceKernelSet([rows for rows, _ in sequences], executors)
        if not self.kernels:
            raise next(iter(self._refused.values()))

    def scores(self, rows: np.ndarray, look: Callable[[np.ndarray], Any] | None = None) -> np.ndarray:
        """Return raw scores as `HostRows.scores`.

        Raises `InputError` for float64 rows, or `PackageError` for float32 rows, if a device without float64
        can't run the kernels for them.
        """
        if rows.dtype not in self.kernels:
            if rows.dtype == np.float32:
                raise self._refused[rows.dtype]
            raise InputError(
                f"{self._place} has no float64 (cl_khr_fp64), in which this model compares {rows.dtype} "
                "rows; pass float32 rows."
            )
        return super().scores(rows, look)
