"""Names of the devices that packages run on."""

from __future__ import annotations

from hbtvm.errors import PackageError
from hbtvm.runtime.cuda import driver
from hbtvm.runtime.package.file import Package


def device_of(package: Package, device: str | int | None) -> str:
    """Return the normalized name of the requested device: ``"cpu"``, ``"cuda:0"``, ...

    Raises `PackageError` if the package was compiled for another kind of device. Raises `DeviceError` if the
    name is not a device's.
    """
    if package.target.get("kind") == "cuda":
        if device == "cpu":
            raise PackageError(
                f"the model was compiled for an NVIDIA GPU ({package.target['arch']}), so it can't run on "
                "the CPU; compile it with --target cpu."
            )
        return f"cuda:{driver.device_index('cuda' if device is None else device)}"
    if device not in (None, "cpu"):
        raise PackageError(
            f"the model was compiled for a CPU, so it can't run on {device}; compile it with "
            '--target \'{"kind": "cuda", "arch": ...}\'.'
        )
    return "cpu"
