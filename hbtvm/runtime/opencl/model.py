"""A package's kernels on an OpenCL device, for rows in host memory."""

from __future__ import annotations

import numpy as np

from hbtvm.errors import DeviceError, PackageError
from hbtvm.runtime.gpu.host_rows import DeviceKernelSet, HostRows
from hbtvm.runtime.opencl import driver
from hbtvm.runtime.opencl.execution import DeviceExecutor, DeviceKernel, TableStore
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
        if not here.doubles:
            raise PackageError(f"{here.place} has no float64 (cl_khr_fp64), in which kernels add scores.")
        base, divisor = np.array(package.forest["base_score"], np.float64), float(package.forest["divisor"])
        tables, by_dtype = TableStore(here), dict[np.dtype, list[tuple[int, DeviceExecutor]]]()
        for entry in package.kernels:
            executor = DeviceExecutor(DeviceKernel(here, entry, tables), base, divisor)
            by_dtype.setdefault(np.dtype(entry.dtype), []).append((entry.rows, executor))
        self.kernels = {
            dtype: DeviceKernelSet(*(list(values) for values in zip(*pairs, strict=True)))
            for dtype, pairs in by_dtype.items()
        }
