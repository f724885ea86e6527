"""CUDA targets: the properties of GPUs that schedules depend on.

The description has the names of TVM's target attributes::

    {"kind": "cuda", "arch": "sm_90", "max_threads_per_block": 1024, "thread_warp_size": 32,
     "max_shared_memory_per_block": 232448, "registers_per_block": 65536,
     "max_registers_per_thread": 255, "cores": 132}

``cores`` (multiprocessors) are the queried device's. For an architecture without a device they are its GPUs'
usual number (`hbtvm.logs.targets.MULTIPROCESSORS`), so that records and defaults match such a device; for
other architectures there are none.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, cast

from hbtvm.errors import DeviceError, TargetError
from hbtvm.logs.targets import multiprocessors
from hbtvm.runtime.cuda import driver
from hbtvm.schedules.workload import Target

_SHARED_KIB = {
    70: 96,
    72: 96,
    75: 64,
    80: 163,
    86: 99,
    87: 163,
    89: 99,
    90: 227,
    100: 227,
    103: 227,
    110: 227,
}
"""Most KiB of shared memory of a block, by architecture (CUDA C++ Programming Guide, table of
technical specifications per compute capability)."""

_SHARED_KIB_LATER = 99  # the same for unlisted architectures

_OLDEST = 70
"""The oldest supported architecture: the first with tensor cores and synchronization within warps."""

_COMMON = {
    "max_threads_per_block": 1024,
    "thread_warp_size": 32,
    "registers_per_block": 65536,
    "max_registers_per_thread": 255,
}
"""Properties that all architectures since `_OLDEST` share."""


def describe(fields: Mapping[str, Any]) -> Target:
    """Return the description of a GPU of an architecture.

    Raises `TargetError` if there is no such architecture, or it is too old.

    `fields`: ``kind`` and ``arch``; other entries override the architecture's.
    """
    arch = fields.get("arch")
    match = re.fullmatch(r"sm_(\d{2,3})[af]?", str(arch))
    if match is None:
        raise TargetError(
            f'a CUDA target takes the architecture, as {{"kind": "cuda", "arch": "sm_90"}}, not {arch!r}'
        )
    number = int(match.group(1))
    if number < _OLDEST:
        raise TargetError(f"CUDA architecture {arch!r} is too old; expected sm_{_OLDEST} or later")
    shared = 1024 * _SHARED_KIB.get(number, _SHARED_KIB_LATER)
    known = {"kind": "cuda", "arch": arch, "max_shared_memory_per_block": shared, **_COMMON}
    unknown = [name for name in fields if name not in (*known, "cores")]
    if unknown:
        raise TargetError(
            f"a CUDA target has no entry {unknown[0]!r}; expected {', '.join((*known, 'cores'))}"
        )
    for name in ("cores", *known):
        if name in fields and name not in ("kind", "arch"):
            if not isinstance(fields[name], int) or fields[name] < 1:
                raise TargetError(
                    f"expected a whole number for {name!r} of a CUDA target, got {fields[name]!r}"
                )
            known[name] = fields[name]
    usual = multiprocessors(arch)
    if usual is not None:
        known.setdefault("cores", usual)
    return cast(Target, known)


def device(index: int = 0) -> Target:
    """Return the description of one of this machine's GPUs.

    Raises `TargetError` if there is no such GPU, or it can't be used.
    """
    try:
        gpu = driver.gpu(index)
    except DeviceError as error:
        if index:
            raise TargetError(str(error)) from None
        raise TargetError(
            f"there is no NVIDIA GPU that can be used: {error} For another machine's, name its architecture: "
            '\'{"kind": "cuda", "arch": "sm_90"}\''
        ) from None
    return describe({"kind": "cuda", "arch": gpu.arch, "cores": gpu.multiprocessors})


def measured_here(target: Target, index: int = 0) -> Target:
    """Check that a GPU of this machine has a target's architecture, so that it can time the code.

    Raises `TargetError` if it has another architecture, or there is no GPU. Returns the target with the
    device's number of multiprocessors, for records.
    """
    try:
        driver.gpu(index)
    except DeviceError as error:
        if index:
            raise TargetError(str(error)) from None
        named = json.dumps({"kind": "cuda", "arch": target["arch"]})
        raise TargetError(
            "tuning times its candidates, and there is no NVIDIA GPU that can be used: "
            f"{str(error).rstrip('.')}; to compile for {target['arch']} without a search, use "
            f"hbtvm compile --target '{named}'"
        ) from None
    here = device(index)
    if here["arch"] != target["arch"]:
        name = f"cuda:{index}" if index else "GPU"
        raise TargetError(
            f"tuning runs its candidates, but this machine's {name} is {here['arch']}, not {target['arch']}; "
            "tune on such a machine (or measure there, with --rpc-tracker), or compile without a search"
        )
    return {**target, "cores": here["cores"]}


def tvm_fields(target: Target) -> dict[str, Any]:
    """Return the fields of a description that `tvm.target.Target` knows."""
    return {
        name: value for name, value in target.items() if name not in ("cores", "max_registers_per_thread")
    }
