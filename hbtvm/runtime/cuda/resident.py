"""`Resident`: the base of models on a GPU."""

from __future__ import annotations

import os

from hbtvm.errors import DeviceError, PackageError
from hbtvm.runtime.cuda import driver
from hbtvm.runtime.cuda.kernel import check_gpu


class Resident:
    """A model whose kernels and tables are on one device, for one process.

    Raises `PackageError` if the device can't run the code. Raises `DeviceError` if there is no such device.

    `arch`: the architecture that it was compiled for.
    `device`: the device's number.
    """

    def __init__(self, arch: str, device: int) -> None:
        try:
            self._gpu = driver.gpu(device)
        except driver.CudaError:
            raise
        except DeviceError as error:
            raise PackageError(f"the model was compiled for an NVIDIA GPU ({arch}), but {error}") from None
        check_gpu(self._gpu, arch)
        self._process = os.getpid()

    def check_process(self) -> None:
        """Check that this process did not inherit the device from its parent.

        Raises `DeviceError` if it did: a CUDA context does not survive a fork.
        """
        if os.getpid() != self._process:
            raise DeviceError(
                "a forked process can't use the GPU that its parent has used; start it by 'spawn', or load "
                "the model in the child only."
            )
