"""`Executor`: an opened model of the native executor, and functions from rows to results."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hbtvm.runtime.memory import empty
from hbtvm.runtime.native import structures as c
from hbtvm.runtime.native.description import TYPES, Described, Kept, Stage, in_order, model_of
from hbtvm.runtime.native.epilogue import fields_of
from hbtvm.runtime.native.epilogues import epilogue_of_columns
from hbtvm.runtime.native.library import Function, Library
from hbtvm.runtime.package import KernelEntry


@dataclass(frozen=True)
class Shape:
    """Type and shape of results.

    Attributes
    ----------
    dtype
        Of a result.
    columns
        Results of a row; 0 for arrays of shape (n,).
    epilogue
        What makes them of raw scores; None for the raw scores themselves.
    """

    dtype: np.dtype
    columns: int
    epilogue: Any = None

    def empty(self, n: int) -> np.ndarray:
        """Memory for the results of n rows."""
        return empty((n, self.columns) if self.columns else (n,), self.dtype)


class Executor:
    """An opened model. Safe to call from several threads at once, and in a forked child.

    Parameters
    ----------
    library
        The executor's code.
    stages
        At least one; the last one makes the scores.
    described
        The rest.
    threads
        Threads that work on a call at most; 0 for as many as kernels were tuned for.

    Raises
    ------
    MemoryError
        If there is no memory for it.
    """

    def __init__(
        self, library: Library, stages: Sequence[Stage], described: Described, threads: int = 0
    ) -> None:
        self._library, self._stages = library, stages
        self.columns, self.outputs = described.columns, stages[-1].outputs
        kept = self._kept = Kept()
        model = model_of(kept, stages, described)
        kept.objects.append(model)
        self._handle = library.open(ctypes.addressof(model), threads)
        if not self._handle:
            raise MemoryError("there is no memory for the model.")
        # What the description points to has to be there until it is closed.
        finalizer = weakref.finalize(self, _close, library, self._handle, kept)
        # When the interpreter ends, daemon threads may be in the midst of calls.
        finalizer.atexit = False

    def check(self) -> None:
        """Have kernels compare what they take with what they get here, in a call without rows.

        Raises
        ------
        ValueError
            If the two differ.
        """
        failed = int(self._library.check(self._handle))
        if failed == -2:
            raise MemoryError("there is no memory for the model.")
        if failed >= 0:
            entries = [entry for stage in self._stages for entry in in_order(stage)]
            raise ValueError(
                f"of the kernel for {entries[failed].rows} rows, its code takes other arguments than it is "
                "described to"
            )

    def poison(self, on: bool) -> None:
        """Set memory for scores to NaN before each call of a kernel, or stop that.

        What a kernel leaves out then shows, where it might find the right scores of an earlier kernel.
        Libraries of older releases do nothing.
        """
        if self._library.poisons:
            self._library.poison(self._handle, int(on))

    def steps(self, n: int, dtype: Any = np.float32) -> list[tuple[int, int, int, int]]:
        """The plan of a call of n rows: kernels of those for the type, the rows that each takes (the first,
        and the one behind the last), and how many threads may share them, if they take long enough."""
        steps = (c.Step * 2)()
        count = self._library.steps(self._handle, TYPES[np.dtype(dtype)], n, ctypes.addressof(steps))
        return [(one.kernel, one.start, one.stop, one.threads) for one in steps[:count]]

    def sums(self, rows: np.ndarray) -> np.ndarray:
        """Plain sums, without base, divisor, or a look at the rows.

        Parameters
        ----------
        rows
            float32 or float64, shape (n, columns), C-contiguous, aligned to its elements.

        Returns
        -------
        float64, shape (n, outputs).
        """
        out = empty((len(rows), self.outputs), np.float64)
        number, n = TYPES[rows.dtype], len(rows)
        _check(self._library.sums(self._handle, number, rows.ctypes.data, n, out.ctypes.data, 0))
        return out

    def finish(self, shape: Shape, raw: np.ndarray) -> np.ndarray | None:
        """Results of raw scores.

        Parameters
        ----------
        shape
            With an epilogue.
        raw
            float64, shape (n, outputs), C-contiguous; overwritten.

        Returns
        -------
        None where a row has none of the labels.
        """
        out = shape.empty(len(raw))
        fields, width = ctypes.addressof(shape.epilogue), raw.shape[1]
        odd = self._library.finish(fields, raw.ctypes.data, width, len(raw), out.ctypes.data)
        return None if odd >= 0 else out

    def function(
        self, shapes: dict[np.dtype, Shape], ready: Sequence[np.dtype]
    ) -> Callable[[Any], np.ndarray | None]:
        """A function from rows to results.

        Parameters
        ----------
        shapes
            Of the results, by the rows' type.
        ready
            Types of rows that kernels read as they are.

        Returns
        -------
        It takes anything, and returns None where that is no array of rows of such a type in C order, or they
        hold values that are refused.
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
        made: Callable[[Any], np.ndarray | None] = self._library.function(ctypes.addressof(bound), self)
        return made


class OneKernel:
    """An executor of one kernel.

    Parameters
    ----------
    library
        The executor's code.
    function, entry
        The kernel.
    threads
        Threads that work on a call.
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
        """Plain sums of rows, as `Executor.sums` takes them; of the type of the kernel's scores."""
        found = self._sums(X)
        return self.executor.sums(X).astype(self._scores) if found is None else found


class _Slow:
    """What `Executor.function` returns where the library can't make numpy's arrays itself."""

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


def _close(library: Library, handle: int, kept: Kept) -> None:
    library.close(handle)
    kept.objects.clear()
