"""`Resident`: the base of models on a GPU."""

from __future__ import annotations

from hbtvm.errors import DeviceError, PackageError
from hbtvm.runtime.cuda import driver
from hbtvm.runtime.cuda.kernel import check_gpu
from hbtvm.runtime.gpu.host_rows import ProcessBound


class Resident(ProcessBound):
    """A model whose kernels and tables are on one device, for one process.

    Raises `PackageError` if the device can't run the code. Raises `DeviceError` if there is no such device.

    `arch`: the architecture that it was compiled for.
    `device`: the device's number.
    """

    def __init__(self, arch: str, device: int) -> None:
        super().__init__()
        try:
            self._gpu = driver.gpu(device)
        except driver.CudaError:
            raise
        except DeviceError as error:
            raise PackageError(f"the model was compiled for an NVIDIA GPU ({arch}), but {error}") from None
        check_gpu(self._gpu, arch)
