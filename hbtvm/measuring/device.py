"""Run kernels on this machine's GPU in the tuner's workers."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np

from hbtvm.runtime.cuda import driver
from hbtvm.runtime.cuda.execution.executor import DeviceExecutor
from hbtvm.runtime.cuda.execution.work import OneKernel
from hbtvm.runtime.cuda.kernel import DeviceKernel, TableStore
from hbtvm.runtime.cuda.timing import Resident
from hbtvm.runtime.gpu.host_rows import Executor
from hbtvm.runtime.opencl import driver as opencl
from hbtvm.runtime.opencl import execution as opencl_execution
from hbtvm.runtime.opencl import timing as opencl_timing
from hbtvm.runtime.package.file import KernelEntry

_FAULT = 70  # exit status of a worker whose context on the device was lost to a fault

_Result = TypeVar("_Result")


class _Resident(Protocol):
    def seconds(self, number: int) -> float:
        """Return the seconds of `number` runs on rows on the device."""


_Place = Callable[[np.ndarray, "int | None"], _Resident]  # from rows, and rows of a run


class DeviceCandidate:
    """A kernel and its tables, loaded on a GPU.

    A kernel's fault destroys the process's context on the device. The process then prints a sentence and
    exits; the tuner records the failure and starts another worker.

    `entry`: the kernel; it has a `launch`.
    `device`: the GPU's number.
    `kind`: its target's kind, ``"cuda"`` or ``"opencl"``.
    """

    def __init__(self, entry: KernelEntry, device: int = 0, kind: str = "cuda") -> None:
        self._last: tuple[tuple[int, int | None], _Resident] | None = None
        self._executor, self._place = or_end(lambda: _LOADERS[kind](entry, device))

    def run(self, rows: np.ndarray) -> np.ndarray:
        """Return the sums of each row, as `hbtvm.runtime.native.executor.Executor.sums` does.

        Scores are NaN before the call, so that a missing sum shows.
        """
        return or_end(lambda: self._executor.run(rows))

    def seconds(self, rows: np.ndarray, number: int, count: int | None = None) -> float:
        """Return the seconds of `number` runs by the device's clock, without copies.

        `count`: rows of a run; if more than `rows` has, the device repeats the rows.
        """

        def timed() -> float:
            if self._last is None or self._last[0] != (id(rows), count):
                self._last = (id(rows), count), self._place(rows, count)
            return self._last[1].seconds(number)

        return or_end(timed)


# Without base scores and divisor, raw scores are sums.


def _on_cuda(entry: KernelEntry, device: int) -> tuple[Executor, _Place]:
    gpu = driver.gpu(device)
    with gpu.current():
        kernel = DeviceKernel(gpu, entry, TableStore(gpu).put)
    executor = DeviceExecutor(OneKernel(kernel, poison=True), np.zeros(kernel.outputs), 1.0)
    return executor, partial(Resident, kernel)


def _on_opencl(entry: KernelEntry, device: int) -> tuple[Executor, _Place]:
    here = opencl.device(device)
    kernel = opencl_execution.DeviceKernel(here, entry, opencl_execution.TableStore(here))
    executor = opencl_execution.DeviceExecutor(kernel, np.zeros(kernel.outputs), 1.0, poison=True)
    return executor, partial(opencl_timing.Resident, kernel)


_LOADERS: dict[str, Callable[[KernelEntry, int], tuple[Executor, _Place]]] = {
    "cuda": _on_cuda,
    "opencl": _on_opencl,
}


def or_end(work: Callable[[], _Result]) -> _Result:
    """Return the result of work on the device; exit the process if the device faults."""
    try:
        return work()
    except (driver.CudaError, opencl.OpenclError) as error:
        if error.lasting:
            print(error, file=sys.stderr, flush=True)
            _end(_FAULT)
        raise


_end: Callable[[int], Any] = os._exit  # exits without clean-up: exit handlers would use the lost context
