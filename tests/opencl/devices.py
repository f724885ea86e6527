"""The OpenCL device that tests run on: in continuous integration PoCL, which computes on the CPU."""

from __future__ import annotations

from hbtvm.errors import DeviceError
from hbtvm.runtime.opencl import driver


def _missing() -> str | None:
    try:
        return None if driver.device().doubles else "the OpenCL device has no float64"
    except DeviceError as error:
        return str(error)


NO_OPENCL = _missing()
"""Why this machine can't run kernels for OpenCL; None if it can."""
