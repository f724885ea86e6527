"""Names of the devices that packages run on."""

from __future__ import annotations

from hbtvm.errors import PackageError
from hbtvm.runtime.gpu.names import device_index, on_gpu
from hbtvm.runtime.package.file import Package


def device_of(package: Package, device: str | int | None) -> str:
    """Return the normalized name of the requested device: ``"cpu"``, ``"cuda:0"``, ``"opencl:0"``, ...

    Raises `PackageError` if the package was compiled for another kind of device. Raises `DeviceError` if the
    name is not a device's.
    """
    kind = str(package.target.get("kind"))
    if on_gpu(package.target):
        if device == "cpu":
            machine = f"an NVIDIA GPU ({package.target['arch']})" if kind == "cuda" else "OpenCL"
            raise PackageError(
                f"the model was compiled for {machine}, so it can't run on the CPU; compile it with "
                "--target cpu."
            )
        return f"{kind}:{device_index(kind if device is None else device, kind)}"
    if device not in (None, "cpu"):
        raise PackageError(
            f"the model was compiled for a CPU, so it can't run on {device}; compile it with "
            '--target \'{"kind": "cuda", "arch": ...}\'.'
        )
    return "cpu"
