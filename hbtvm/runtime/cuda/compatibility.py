"""Which drivers run code of a CUDA toolkit, and the error for older ones.

Machine code runs with every driver of the toolkit's major version (such as 13.0 and 13.1) or a later one;
portable code (PTX) needs a driver of at least the toolkit's version.
"""

from __future__ import annotations

from hbtvm.errors import PackageError
from hbtvm.runtime.cuda.driver import CudaError, Gpu

BRANCHES = {
    "12.0": 525,
    "12.1": 530,
    "12.2": 535,
    "12.3": 545,
    "12.4": 550,
    "12.5": 555,
    "12.6": 560,
    "12.8": 570,
    "12.9": 575,
    "13.0": 580,
    "13.1": 590,
}
"""First drivers for versions of CUDA on Linux (CUDA's release notes, table of toolkits and drivers)."""


def unreadable_code(gpu: Gpu, toolkit: str, error: CudaError) -> PackageError:
    """Return the error that says why a device's driver can't load a model's code.

    `toolkit`: version of the CUDA toolkit that compiled the code; empty if unknown.
    `error`: the driver's error.
    """
    here = gpu.driver.version()
    begin = f"cuda:{gpu.index} ({gpu.name}, {gpu.arch}) can't run the model's code: "
    if not toolkit:
        return PackageError(
            f"{begin}its driver, for CUDA {here}, is older than what the model was compiled with; update the "
            "driver, or compile the model again on this machine."
        )
    if _parts(here) < _parts(toolkit):
        branch = f" (driver {BRANCHES[toolkit]} or later)" if toolkit in BRANCHES else ""
        return PackageError(
            f"{begin}it was compiled by CUDA {toolkit}, which needs a driver for CUDA {toolkit} or later"
            f"{branch}, but this machine's driver is for CUDA {here}; update the driver, or compile the "
            f"model again with the nvcc of CUDA {here} or of an older CUDA {here.partition('.')[0]}."
        )
    return PackageError(
        f"{begin}it was compiled by CUDA {toolkit}, and this machine's driver, for CUDA {here}, is new "
        f"enough, but does not load it ({str(error).rstrip('.')}); compile the model again for {gpu.arch}."
    )


def _parts(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))
