"""`RecursiveFront`: a package's recursive model, in front of the kernels that read its readout as rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from hbtvm.errors import InputError, PackageError
from hbtvm.runtime.cpu import check_cpu
from hbtvm.runtime.native.library import load_library
from hbtvm.runtime.package.entry import Package
from hbtvm.runtime.recursive.host import RecursiveHost


class DeviceFront:
    """A package's recursive model, opened on a GPU.

    Raises `PackageError` if this machine can't run it, or it is damaged. Raises `DeviceError` if there is no
    such device, or it has too little memory.

    `package`: a package with a recursive model for a GPU, and an executor for its host.
    `device`: the GPU's number.
    """

    def __init__(self, package: Package, device: int) -> None:
        from hbtvm.runtime.cuda.recursive.device import RecursiveDevice

        assert package.recursion is not None
        library = load_library(package.executor)
        self._device = RecursiveDevice(
            library, package.recursion, str(package.target["arch"]), device, package.cuda_version
        )

    def rows(self, structures: Any) -> np.ndarray:
        """Return the readouts, as `RecursiveFront.rows` does.

        Raises `DeviceError` if the device has too little memory, or fails.
        """
        return _some(self._device.run(structures))


class RecursiveFront:
    """A package's recursive model, opened.

    Raises `PackageError` if this machine can't run it, or it is damaged.

    `package`: a package with a recursive model and an executor.
    `threads`: most threads of a call; None for the number that it was tuned for.
    """

    def __init__(self, package: Package, threads: int | None) -> None:
        assert package.recursion is not None
        check_cpu(package.target)
        library = load_library(package.executor)
        self.host = RecursiveHost(library, package.recursion, threads or 0)
        try:
            self.host.check()
        except ValueError as error:
            raise PackageError(f"the package is damaged: {error}.") from None

    def rows(self, structures: Any) -> np.ndarray:
        """Return the readouts of structures as rows; see `RecursiveHost.run`.

        Raises `InputError` if the structures don't fit the model, or there is nothing to read.
        """
        return _some(self.host.run(structures))


def _some(rows: np.ndarray) -> np.ndarray:
    if not len(rows):
        raise InputError("expected at least one structure with a node, got none.")
    return rows
