"""`Executor`: an opened model of the native executor, and functions from rows to results."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from hbtvm.runtime.memory import aligned, empty
from hbtvm.runtime.native import structures as c
from hbtvm.runtime.native.library import Function, Library
from hbtvm.runtime.package import KernelEntry

_TYPES: dict[np.dtype, int] = {np.dtype(np.float32): c.FLOAT32, np.dtype(np.float64): c.FLOAT64}
_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}
"""DLPack's codes of types."""


@dataclass(frozen=True)
class Stage:
    """Kernels that make columns of some columns of a matrix.

    Attributes
    ----------
    kernels
        With their functions.
    columns
        Which columns of the matrix they read; of a model of one stage all columns of the rows.
    outputs
        Columns that they make.
    """

    kernels: Sequence[tuple[KernelEntry, Function]]
    columns: Sequence[int]
    outputs: int


@dataclass(frozen=True)
class Described:
    """What an executor needs to know of a model beside its kernels.

    Attributes
    ----------
    columns
        Columns of the rows.
    base, divisor
        Raw scores are sums / divisor + base.
    refuses
        For each column, whether it refuses NaN (1), infinities (2), both (3) or neither; None where nothing
        is refused.
    telling
        What tells that values are not finite: ``"rows"``, all ``"scores"``, or one ``"column"`` of these.
    telling_column
        That column.
    """

    columns: int
    base: Sequence[float] = ()
    divisor: float = 1.0
    refuses: np.ndarray | None = None
    telling: Literal["rows", "scores", "column"] = "rows"
    telling_column: int = 0


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


@dataclass
class Kept:
    """What the description points to, which has to stay where it is."""

    objects: list[Any] = field(default_factory=list)

    def array(self, kind: Any, values: Sequence[Any]) -> int | None:
        """The address of an array of structures or numbers; None of none."""
        if not values:
            return None
        made = (kind * len(values))(*values)
        self.objects.append(made)
        return ctypes.addressof(made)

    def numpy(self, array: np.ndarray) -> int:
        """The address of an array's memory."""
        self.objects.append(array)
        return int(array.ctypes.data)


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
        weakref.finalize(self, _close, library, self._handle, kept)

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
            entries = [entry for stage in self._stages for entry in _in_order(stage)]
            raise ValueError(
                f"of the kernel for {entries[failed].rows} rows, its code takes other arguments than it is "
                "described to"
            )

    def steps(self, n: int, dtype: Any = np.float32) -> list[tuple[int, int, int, int]]:
        """The plan of a call of n rows: kernels of those for the type, the rows that each takes (the first,
        and the one behind the last), and how many threads may share them, if they take long enough."""
        steps = (c.Step * 2)()
        count = self._library.steps(self._handle, _TYPES[np.dtype(dtype)], n, ctypes.addressof(steps))
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
        number, n = _TYPES[rows.dtype], len(rows)
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
        self, shapes: dict[np.dtype, Shape], ready: Sequence[np.dtype], bare: bool = False
    ) -> Callable[[Any], np.ndarray | None]:
        """A function from rows to results.

        Parameters
        ----------
        shapes
            Of the results, by the rows' type.
        ready
            Types of rows that kernels read as they are.
        bare
            Whether results are sums (see `sums`).

        Returns
        -------
        It takes anything, and returns None where that is no array of rows of such a type in C order, or they
        hold values that are refused.
        """
        bound = c.BoundOutput(
            executor=self._handle,
            columns=self.columns,
            bare=bare,
            numbers=(np.dtype(np.float32).num, np.dtype(np.float64).num),
        )
        for dtype, number in _TYPES.items():
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
            return _Slow(self, self._library, self._handle, shapes, ready, bare)
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
        shape = Shape(np.dtype(np.float64), signature.outputs)
        self._sums = self.executor.function({dtype: shape}, [dtype], bare=True)

    def run(self, X: np.ndarray) -> np.ndarray:
        """Plain sums, as `Executor.sums` gives them."""
        found = self._sums(X)
        return self.executor.sums(X) if found is None else found


class _Slow:
    """What `Executor.function` returns where the library can't make numpy's arrays itself."""

    def __init__(
        self,
        executor: Executor,
        library: Library,
        handle: int,
        shapes: dict[np.dtype, Shape],
        ready: Sequence[np.dtype],
        bare: bool,
    ) -> None:
        self._executor, self._library, self._handle = executor, library, handle
        self._shapes, self._ready, self._bare = shapes, frozenset(ready), bare

    def __call__(self, X: Any) -> np.ndarray | None:
        if type(X) is not np.ndarray or X.dtype not in self._ready or X.ndim != 2 or not len(X):
            return None
        if X.shape[1] != self._executor.columns or not (X.flags.c_contiguous and X.flags.aligned):
            return None
        if self._bare:
            return self._executor.sums(X)
        shape = self._shapes[X.dtype]
        out = shape.empty(len(X))
        epilogue = None if shape.epilogue is None else ctypes.addressof(shape.epilogue)
        status = self._library.run(
            self._handle, epilogue, _TYPES[X.dtype], X.ctypes.data, len(X), out.ctypes.data, 0, None
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


def _in_order(stage: Stage) -> list[KernelEntry]:
    """Kernels in the order of their description."""
    entries = [entry for entry, _ in stage.kernels]
    return sorted(entries, key=lambda entry: entry.dtype)


def model_of(kept: Kept, stages: Sequence[Stage], described: Described) -> c.Model:
    """Return the description of a model, which points to what `kept` holds."""
    base = np.array(described.base, np.float64)
    refuses = described.refuses
    if refuses is not None:
        refuses = np.ascontiguousarray(refuses, np.uint8)
    return c.Model(
        version=c.VERSION,
        columns=described.columns,
        stages=kept.array(c.Stage, [_stage(kept, one, len(stages) > 1) for one in stages]),
        count=len(stages),
        divisor=described.divisor,
        base=kept.numpy(base) if base.any() else None,
        refuses=kept.numpy(refuses) if refuses is not None and refuses.any() else None,
        telling=("rows", "scores", "column").index(described.telling),
        telling_column=described.telling_column,
    )


def _stage(kept: Kept, stage: Stage, staged: bool) -> c.Stage:
    sets = []
    for dtype in sorted({entry.dtype for entry, _ in stage.kernels}):
        own = [_kernel(kept, entry, function) for entry, function in stage.kernels if entry.dtype == dtype]
        sets.append(c.Kernels(kept.array(c.Kernel, own), len(own), _TYPES[np.dtype(dtype)]))
    columns = kept.array(ctypes.c_int64, list(stage.columns)) if staged else None
    return c.Stage(kept.array(c.Kernels, sets), len(sets), columns, len(stage.columns), stage.outputs)


def _kernel(kept: Kept, entry: KernelEntry, function: Function) -> c.Kernel:
    signature = entry.signature
    tables = []
    for argument, given in zip(signature.tables, entry.tables, strict=True):
        table = aligned(given)
        tables.append(
            c.Table(
                data=kept.numpy(table),
                shape=kept.array(ctypes.c_int64, list(table.shape)),
                axes=table.ndim,
                code=_CODES[table.dtype.kind],
                bits=8 * table.dtype.itemsize,
                splits=argument.splits,
            )
        )
    kept.objects.append(function)
    return c.Kernel(
        function=function.address,
        self=function.handle or None,
        tables=kept.array(c.Table, tables),
        count=len(tables),
        rows=entry.rows,
        seconds=-1.0 if entry.seconds is None else entry.seconds,
        threads=entry.threads,
        over=c.SHARING[entry.parallel],
        grain=entry.grain,
        row_tile=signature.row_tile,
        groups=signature.groups,
        width=signature.width,
        by_row=signature.by_row,
        type=_TYPES[np.dtype(signature.scores.dtype)],
        takes_missing=entry.missing,
    )
