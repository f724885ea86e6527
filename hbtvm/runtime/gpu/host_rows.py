"""Predictions for rows in host memory: the choice of the kernel for a call, and the way to it."""

from __future__ import annotations

import bisect
import itertools
import math
import os
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

import numpy as np

from hbtvm.errors import DeviceError


class Executor(Protocol):
    """A kernel, or several in sequence, on a device."""

    def run(self, X: np.ndarray) -> np.ndarray:
        """Return raw scores, float64, shape (N, O), of prepared rows, shape (N, F)."""


_Executor = TypeVar("_Executor", bound=Executor)


class DeviceKernelSet(Generic[_Executor]):
    """Kernels for one type of rows, on one device.

    The kernel that was tuned for the nearest number of rows, by ratio, runs a call. Unlike on a CPU, a call
    is never split among kernels, since small launches leave a GPU idle.

    `rows`, `executors`: the numbers of rows that kernels were tuned for, and the kernels' executors.
    """

    def __init__(self, rows: Sequence[int], executors: Sequence[_Executor]) -> None:
        order = sorted(range(len(rows)), key=lambda n: rows[n])
        self._executors = [executors[n] for n in order]
        # The nearest by ratio changes at the geometric mean of two kernels' numbers.
        self._bounds = [math.sqrt(rows[a] * rows[b]) for a, b in itertools.pairwise(order)]

    def executor(self, rows: int) -> _Executor:
        """Return the kernel for a number of rows."""
        return self._executors[bisect.bisect_left(self._bounds, rows)]

    def run(self, rows: np.ndarray, look: Callable[[np.ndarray], Any] | None) -> np.ndarray:
        """Return raw scores of rows in host memory."""
        if look is not None:
            look(rows)
        return self.executor(len(rows)).run(rows)


class ProcessBound:
    """Base of models that are on a device for one process: contexts do not survive a fork."""

    def __init__(self) -> None:
        self._process = os.getpid()

    def check_process(self) -> None:
        """Check that this process did not inherit the device from its parent.

        Raises `DeviceError` if it did.
        """
        if os.getpid() != self._process:
            raise DeviceError(
                "a forked process can't use the GPU that its parent has used; start it by 'spawn', or load "
                "the model in the child only."
            )


class HostRows(ProcessBound, Generic[_Executor]):
    """Base of models on a device: raw scores of rows in host memory."""

    kernels: dict[np.dtype, DeviceKernelSet[_Executor]]  # by type of rows

    def scores(self, rows: np.ndarray, look: Callable[[np.ndarray], Any] | None = None) -> np.ndarray:
        """Return raw scores of rows in host memory, float64, shape (N, O).

        `rows`: prepared rows: C-contiguous, of a kernel's type.
        `look`: called with the rows first; it may refuse them.
        """
        return self.kernels[rows.dtype].run(rows, look)

    def plain_call(
        self,
        prepare: Callable[[Any], np.ndarray],
        convert: Callable[[np.ndarray], Any],
        look: Callable[[np.ndarray], Any] | None = None,
    ) -> Callable[[Any], Any]:
        """Return a function from numpy arrays to an output; it returns None for other objects and empty
        arrays.

        `prepare`, `convert`: from the caller's rows to the kernels', and from raw scores to the output.
        `look`: as of `scores`.
        """
        scores, check = self.scores, self.check_process

        def call(X: Any) -> Any:
            if type(X) is not np.ndarray:
                return None
            check()
            rows = prepare(X)
            return convert(scores(rows, look)) if len(rows) else None

        return call
