"""OpenCL targets: the properties of devices that schedules depend on.

The description has the names of CUDA's (`hbtvm.compiler.targets.cuda`)::

    {"kind": "opencl", "arch": "gfx1100", "max_threads_per_block": 256, "thread_warp_size": 32,
     "max_shared_memory_per_block": 49152, "registers_per_block": 65536,
     "max_registers_per_thread": 255, "cores": 48}

``arch`` is a device's name, by which logs tell devices apart; ``cores`` are its compute units. Kernels are
compiled by the device's driver, so that a package runs on every device with as many threads and as much
local memory for a block. Without a device, a target has the least that common GPUs offer.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from hbtvm.errors import DeviceError, TargetError
from hbtvm.runtime.opencl import driver
from hbtvm.schedules.workload import Target

_COMMON = {
    "arch": "any",
    "max_threads_per_block": 256,
    "thread_warp_size": 32,
    "max_shared_memory_per_block": 32768,
    "registers_per_block": 65536,
    "max_registers_per_thread": 255,
}
"""Properties of a target without a device. Drivers report no registers: they are about those of CUDA's."""

_MOST_THREADS, _MOST_SHARED = 1024, 49152  # of a block, by schedules


def describe(fields: Mapping[str, Any]) -> Target:
    """Return the description of a device from a target's entries.

    Raises `TargetError` if an entry is unknown, or has no such value.
    """
    known: dict[str, Any] = {"kind": "opencl", **_COMMON}
    unknown = [name for name in fields if name not in (*known, "cores")]
    if unknown:
        raise TargetError(
            f"an OpenCL target has no entry {unknown[0]!r}; expected {', '.join((*known, 'cores'))}"
        )
    if not re.fullmatch(r"[a-z0-9.-]{1,60}", str(fields.get("arch", "any"))):
        raise TargetError(f"an OpenCL target's arch is a device's name in lower case, not {fields['arch']!r}")
    for name, value in fields.items():
        if name not in ("kind", "arch") and (not isinstance(value, int) or value < 1):
            raise TargetError(f"expected a whole number for {name!r} of an OpenCL target, got {value!r}")
    most = {"max_threads_per_block": _MOST_THREADS, "max_shared_memory_per_block": _MOST_SHARED}
    for name, limit in most.items():
        if fields.get(name, 0) > limit:
            raise TargetError(f"{name!r} of an OpenCL target is at most {limit}, not {fields[name]}")
    return cast(Target, {**known, **fields})


def device(index: int = 0) -> Target:
    """Return the description of one of this machine's devices.

    Raises `TargetError` if there is no such device, or it can't be used.
    """
    try:
        here = driver.device(index)
    except DeviceError as error:
        raise TargetError(
            f"there is no OpenCL device that can be used: {error} For another machine's, name {_ANY}"
        ) from None
    fields = {
        "kind": "opencl",
        "arch": here.arch,
        "max_threads_per_block": min(here.most_threads, _MOST_THREADS),
        "max_shared_memory_per_block": min(here.local_bytes, _MOST_SHARED),
        "cores": here.units,
    }
    return describe(fields)


_ANY = '\'{"kind": "opencl"}\''


def measured_here(target: Target, index: int = 0) -> Target:
    """Check that a device of this machine can run a target's code, so that it can be timed.

    Raises `TargetError` if it can't, or there is none. Returns the target with the device's name and number
    of compute units, for records.
    """
    here = device(index)
    for name in ("max_threads_per_block", "max_shared_memory_per_block"):
        if here[name] < target[name]:
            raise TargetError(
                f"tuning runs its candidates, but opencl:{index} has {name} {here[name]}, and the target "
                f"{target[name]}; tune on a device with as many, or compile without a search"
            )
    if target["arch"] not in ("any", here["arch"]):
        raise TargetError(
            f"tuning runs its candidates, but opencl:{index} is {here['arch']}, not {target['arch']}; tune "
            "on such a device, or compile without a search"
        )
    return {**target, "arch": here["arch"], "cores": here["cores"]}


def tvm_fields(target: Target) -> dict[str, Any]:
    """Return the fields of a description that `tvm.target.Target` knows."""
    # OpenCL 1.2 has no shuffles: with one thread a warp, TVM adds over threads in local memory.
    return {
        "kind": "opencl",
        "max_threads_per_block": target["max_threads_per_block"],
        "max_shared_memory_per_block": target["max_shared_memory_per_block"],
        "thread_warp_size": 1,
    }
