"""Run kernels on this machine's GPU in the tuner's workers."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from hbtvm.runtime.cuda import driver
from hbtvm.runtime.cuda.execution.executor import DeviceExecutor
from hbtvm.runtime.cuda.execution.work import OneKernel
from hbtvm.runtime.cuda.kernel import DeviceKernel, TableStore
from hbtvm.runtime.cuda.timing import Resident
from hbtvm.runtime.opencl import driver as opencl
from hbtvm.runtime.opencl.execution import DeviceExecutor as OpenclExecutor
from hbtvm.runtime.opencl.execution import DeviceKernel as OpenclKernel
from hbtvm.runtime.opencl.execution import TableStore as OpenclTables
from hbtvm.runtime.opencl.timing import Resident as OpenclResident
from hbtvm.runtime.package.file import KernelEntry

_FAULT = 70  # exit status of a worker whose CUDA context was lost to a fault

_Result = TypeVar("_Result")


class DeviceCandidate:
    """A kernel and its tables, loaded on a GPU.

    A kernel's fault destroys the process's CUDA context. The process then prints a sentence and exits; the
    tuner records the failure and starts another worker.

    `entry`: the kernel; it has a `launch`.
    `device`: the GPU's number.
    """

    def __init__(self, entry: KernelEntry, device: int = 0) -> None:
        self._last: tuple[tuple[int, int | None], Resident] | None = None
        self._kernel, self._executor = or_end(lambda: self._load(entry, device))

    @staticmethod
    def _load(entry: KernelEntry, device: int) -> tuple[DeviceKernel, DeviceExecutor]:
        gpu = driver.gpu(device)
        with gpu.current():
            kernel = DeviceKernel(gpu, entry, TableStore(gpu).put)
        # Without base scores and divisor, raw scores are sums.
        return kernel, DeviceExecutor(OneKernel(kernel, poison=True), np.zeros(kernel.outputs), 1.0)

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
                self._last = (id(rows), count), Resident(self._kernel, rows, count)
            return self._last[1].seconds(number)

        return or_end(timed)


def or_end(work: Callable[[], _Result]) -> _Result:
    """Return the result of work on the device; exit the process if the device faults."""
    try:
        return work()
    except driver.CudaError as error:
        if error.lasting:
            print(error, file=sys.stderr, flush=True)
            _end(_FAULT)
        raise


_end: Callable[[int], Any] = os._exit  # exits without clean-up: exit handlers would use the lost context


class OpenclCandidate:
    """A kernel and its tables, loaded on an OpenCL device; methods as of `DeviceCandidate`.

    `entry`, `device`: as there.
    """

    def __init__(self, entry: KernelEntry, device: int = 0) -> None:
        here = opencl.device(device)
        self._kernel = OpenclKernel(here, entry, OpenclTables(here))
        self._executor = OpenclExecutor(self._kernel, np.zeros(self._kernel.outputs), 1.0, poison=True)
        self._last: tuple[tuple[int, int | None], OpenclResident] | None = None

    def run(self, rows: np.ndarray) -> np.ndarray:
        """Return the sums of each row; scores are NaN before the call."""
        return self._executor.run(rows)

    def seconds(self, rows: np.ndarray, number: int, count: int | None = None) -> float:
        """Return the seconds of `number` runs of `count` rows by the device's clock, without copies."""
        if self._last is None or self._last[0] != (id(rows), count):
            self._last = (id(rows), count), OpenclResident(self._kernel, rows, count)
        return self._last[1].seconds(number)


def candidate(kind: str, entry: KernelEntry, device: int) -> DeviceCandidate | OpenclCandidate:
    """Return a kernel on this machine's device, by the kind of its target."""
    return (OpenclCandidate if kind == "opencl" else DeviceCandidate)(entry, device)
