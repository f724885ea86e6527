"""`Executor`: an opened model of the native executor, and functions from rows to results."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hbtvm.runtime.memory import empty
from hbtvm.runtime.native import structures as c
from hbtvm.runtime.native.description import TYPES, Described, Kept, Stage, in_order, model_of
from hbtvm.runtime.native.epilogues.epilogue import fields_of
from hbtvm.runtime.native.epilogues.select import epilogue_of_columns
from hbtvm.runtime.native.frames import BoundFrames, FrameReader
from hbtvm.runtime.native.library import Function, Library
from hbtvm.runtime.package.file import KernelEntry


@dataclass(frozen=True)
class Shape:
    """Type and shape of results."""

    dtype: np.dtype  # type of a result
    columns: int  # results per row; 0 for arrays of shape (n,)
    epilogue: Any = None  # computes results from raw scores; None for the raw scores themselves

    def empty(self, n: int) -> np.ndarray:
        """Return uninitialised memory for the results of n rows."""
        return empty((n, self.columns) if self.columns else (n,), self.dtype)


class Executor:
    """An opened model. Several threads may call it at once, and so may a forked child.

    `library`: the executor's code.
    `stages`: at least one stage; the last computes the scores.
    `described`: the other parameters.
    `threads`: maximal number of threads per call; 0 for the number for which kernels were tuned.
    Raises `MemoryError` if there is no memory for it.
    """

    def __init__(
        self, library: Library, stages: Sequence[Stage], described: Described, threads: int = 0
    ) -> None:
        self._library, self._stages = library, stages
        self.columns, self.outputs = described.columns, stages[-1].outputs
        self._kept = Kept()
        model = model_of(self._kept, stages, described)
        self._handle = self._kept.opened(self, library, model, threads)

    def check(self) -> None:
        """Let kernels check the types and shapes of their arguments, in a call without rows.

        Raises `ValueError` if an argument differs from the description.
        """
        failed = int(self._library.check(self._handle))
        if failed == -2:
            raise MemoryError("there is no memory for the model.")
        if failed >= 0:
            entries = [entry for stage in self._stages for entry in in_order(stage)]
            raise ValueError(
                f"in the kernel for {entries[failed].rows} rows, its code takes other arguments than it is "
                "described to"
            )

    def poison(self, on: bool) -> None:
        """Start or stop setting score memory to NaN before each call of a kernel.

        Scores that a kernel does not write then show, instead of an earlier kernel's scores. Libraries of
        older releases ignore this.
        """
        if self._library.poisons:
            self._library.poison(self._handle, int(on))

    def steps(self, n: int, dtype: Any = np.float32) -> list[tuple[int, int, int, int]]:
        """Return the plan for n rows.

        For each step: the kernel's index, its range of rows (start, stop), and the maximal number of threads,
        which long steps use.
        """
        steps = (c.Step * 2)()
        count = self._library.steps(self._handle, TYPES[np.dtype(dtype)], n, ctypes.addressof(steps))
        return [(step.kernel, step.start, step.stop, step.threads) for step in steps[:count]]

    def sums(self, rows: np.ndarray) -> np.ndarray:
        """Return plain sums, without base, divisor, or input checks.

        `rows`: float32 or float64, shape (n, columns), C-contiguous, aligned to its elements.
        Returns float64, shape (n, outputs).
        """
        out = empty((len(rows), self.outputs), np.float64)
        number, n = TYPES[rows.dtype], len(rows)
        _check(self._library.sums(self._handle, number, rows.ctypes.data, n, out.ctypes.data, 0))
        return out

    def finish(self, shape: Shape, raw: np.ndarray) -> np.ndarray | None:
        """Compute results from raw scores.

        `shape`: a shape with an epilogue.
        `raw`: float64, shape (n, outputs), C-contiguous; overwritten.
        Returns None where a row has none of the labels.
        """
        out = shape.empty(len(raw))
        fields, width = ctypes.addressof(shape.epilogue), raw.shape[1]
        unlabelled = self._library.finish(fields, raw.ctypes.data, width, len(raw), out.ctypes.data)
        return None if unlabelled >= 0 else out

    def function(
        self, shapes: dict[np.dtype, Shape], ready: Sequence[np.dtype], frames: FrameReader | None = None
    ) -> Callable[[Any], np.ndarray | None]:
        """Return a function from rows to results.

        `shapes`: of the results, by the rows' type.
        `ready`: types of rows that kernels read as they are.
        `frames`: how it reads frames of pandas; None if it does not.
        Returns a function of any object, which returns None unless the object is an array of rows of such a
        type in C order, without refused values.
        """
        bound = c.BoundOutput(
            executor=self._handle,
            columns=self.columns,
            numbers=(np.dtype(np.float32).num, np.dtype(np.float64).num),
        )
        for dtype, number in TYPES.items():
            shape = shapes.get(dtype)
            if shape is None:
                continue
            epilogue = None
            if shape.epilogue is not None:
                self._kept.objects.append(shape.epilogue)
                epilogue = ctypes.addressof(shape.epilogue)
            bound.results[number] = c.Results(
                epilogue=epilogue,
                ready=dtype in ready,
                number=shape.dtype.num,
                item=shape.dtype.itemsize,
                axes=2 if shape.columns else 1,
                columns=shape.columns or 1,
            )
        if not self._library.calls_arrays:
            return _Slow(self, self._library, self._handle, shapes, ready)
        self._kept.objects.append(bound)
        if frames is None:
            return self._function(bound, self)
        both = BoundFrames(ctypes.addressof(bound), ctypes.pointer(frames.fields))
        self._kept.objects.append(both)
        return self._function(both, (self, frames), True)

    def _function(self, bound: Any, owner: Any, frames: bool = False) -> Callable[[Any], np.ndarray | None]:
        function: Callable[[Any], np.ndarray | None]
        function = self._library.function(ctypes.addressof(bound), owner, frames)
        return function


class OneKernel:
    """An executor of a single kernel.

    `library`: the executor's code.
    `function`, `entry`: the kernel.
    `threads`: number of threads per call.
    """

    def __init__(self, library: Library, function: Function, entry: KernelEntry, threads: int) -> None:
        signature = entry.signature
        stage = Stage([(entry, function)], range(signature.n_features), signature.outputs)
        self.executor = Executor(library, [stage], Described(signature.n_features), threads)
        dtype = np.dtype(signature.dtype)
        self._scores = np.dtype(signature.scores.dtype)
        plain = fields_of(epilogue_of_columns(self._scores.name, self._scores.name, signature.outputs))
        self._sums = self.executor.function({dtype: Shape(self._scores, signature.outputs, plain)}, [dtype])

    def run(self, X: np.ndarray) -> np.ndarray:
        """Return plain sums of rows, as in `Executor.sums`, in the type of the kernel's scores."""
        sums = self._sums(X)
        return self.executor.sums(X).astype(self._scores) if sums is None else sums


class _Slow:
    """The callable that `Executor.function` returns if the library can't create numpy arrays itself."""

    def __init__(
        self,
        executor: Executor,
        library: Library,
        handle: int,
        shapes: dict[np.dtype, Shape],
        ready: Sequence[np.dtype],
    ) -> None:
        self._executor, self._library, self._handle = executor, library, handle
        self._shapes, self._ready = shapes, frozenset(ready)

    def __call__(self, X: Any) -> np.ndarray | None:
        if type(X) is not np.ndarray or X.dtype not in self._ready or X.ndim != 2 or not len(X):
            return None
        if X.shape[1] != self._executor.columns or not (X.flags.c_contiguous and X.flags.aligned):
            return None
        shape = self._shapes[X.dtype]
        out = shape.empty(len(X))
        epilogue = None if shape.epilogue is None else ctypes.addressof(shape.epilogue)
        status = self._library.run(
            self._handle, epilogue, TYPES[X.dtype], X.ctypes.data, len(X), out.ctypes.data, 0, None
        )
        return None if status else out


def _check(status: int) -> None:
    if status == 1:
        raise MemoryError("there is no memory for the rows.")
    if status:
        raise RuntimeError(f"the executor failed with status {status}")
