"""The machine that measures an archive: whether it can run the code, and what it is called."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

from hbtvm.errors import DeviceError, InputError, TargetError
from hbtvm.measuring import archive
from hbtvm.measuring.archive import Trials
from hbtvm.runtime.cpu import missing_features
from hbtvm.runtime.cuda import driver
from hbtvm.runtime.gpu.names import device_index


def machine_for(trials: Trials, device: str | int | None) -> tuple[dict[str, Any], str, int]:
    """Return the target as this machine measures it, the machine's name, and the GPU's number.

    Raises `TargetError` if this machine can't run the archive's code. Raises `InputError` if there is no such
    device.
    """
    target = dict(trials.target)
    if not trials.on_gpu:
        if device not in (None, "cpu"):
            raise InputError(f"the archive is for a CPU, so it can't be measured on device {device!r}.")
        lacking = missing_features(target)
        if lacking:
            raise TargetError(
                f"the archive's code is for {target.get('mcpu', 'another CPU')}, but this machine lacks "
                f"{', '.join(lacking)}."
            )
        threads, cpus = trials.manifest["threads"], len(os.sched_getaffinity(0))
        if threads > cpus:
            raise TargetError(
                f"the archive is for calls of {threads} threads, but this process may use {cpus} CPUs; "
                f"export it with --threads {cpus}."
            )
        return target, _cpu_name(), 0
    try:
        index = 0 if device is None else device_index(device)
    except DeviceError as error:
        raise InputError(str(error)) from None
    gpu = driver.gpu(index)
    if gpu.arch != target["arch"].rstrip("af"):
        raise TargetError(
            f"the archive's code is for {target['arch']}, but cuda:{index} is a {gpu.name} ({gpu.arch}); "
            f'export it with --target \'{{"kind": "cuda", "arch": "{gpu.arch}"}}\'.'
        )
    return {**target, "cores": gpu.multiprocessors}, gpu.name, index


def _cpu_name() -> str:
    """The CPU's model name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration, IndexError):
        return platform.machine()


def most_bytes(trials: Trials, folder: Path) -> int:
    """Return the bytes of the largest batch of an archive that was unpacked into a folder."""
    most = 0
    for task in trials.tasks:
        member = trials.manifest["data"][task.data]["rows"]
        known = (folder / member).stat().st_size
        most = max(most, known * max(1, task.workload["rows"] // archive.MOST_ROWS))
    return most
