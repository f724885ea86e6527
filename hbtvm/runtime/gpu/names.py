"""Names of GPUs: kinds of targets, and devices such as ``"cuda:1"``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hbtvm.errors import DeviceError


def on_gpu(target: Mapping[str, Any]) -> bool:
    """Return whether a target's kernels are started on a device, in blocks of threads."""
    return target.get("kind") in ("cuda", "opencl")


def device_index(device: str | int, kind: str = "cuda") -> int:
    """Return the number of a device such as ``"cuda:1"``, ``"cuda"`` or ``1``.

    Raises `DeviceError` for other names.

    `kind`: ``"cuda"`` or ``"opencl"``.
    """
    name, separator, number = (f"{kind}:{device}" if isinstance(device, int) else str(device)).partition(":")
    if name != kind or (separator and not number.isdecimal()):
        raise DeviceError(f'device is {device!r}; expected "{kind}", "{kind}:0", "{kind}:1", ...')
    return int(number) if separator else 0
