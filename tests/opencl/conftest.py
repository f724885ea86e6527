"""The OpenCL device that tests run on: in continuous integration PoCL, which computes on the CPU."""

from __future__ import annotations

import pytest

from hbtvm.errors import DeviceError
from hbtvm.runtime.opencl import driver


@pytest.fixture(scope="session")
def opencl() -> driver.Device:
    """Return the first device; skip the test if there is none that computes in float64.

    Drivers are loaded by the first test that asks, not while tests are collected, so that they are in no
    other tests' processes.
    """
    try:
        device = driver.device()
    except DeviceError:
        pytest.skip("no OpenCL driver is installed (Debian: pocl-opencl-icd)")
    if not device.doubles:
        pytest.skip("the OpenCL device has no float64")
    return device
