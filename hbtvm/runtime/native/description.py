"""The executor's description of a model: the structures of ``executor.h``, filled in."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from hbtvm.runtime.memory import aligned
from hbtvm.runtime.native import structures as c
from hbtvm.runtime.native.library import Function, Library
from hbtvm.runtime.package.file import KernelEntry

TYPES: dict[np.dtype, int] = {np.dtype(np.float32): c.FLOAT32, np.dtype(np.float64): c.FLOAT64}
_CODES = {"i": 0, "u": 1, "f": 2, "b": 6}  # DLPack's type codes


@dataclass(frozen=True)
class Stage:
    """Kernels that compute columns from some columns of a matrix."""

    kernels: Sequence[tuple[KernelEntry, Function]]  # kernels with their functions
    # The columns of the matrix that they read; in a model with one stage, all columns of the rows
    columns: Sequence[int]
    outputs: int  # number of columns that they compute


@dataclass(frozen=True)
class Described:
    """The executor's parameters of a model, besides kernels."""

    columns: int  # number of columns of the rows
    # `base`, `divisor`: raw scores are sums / divisor + base
    base: Sequence[float] = ()
    divisor: float = 1.0
    # For each column, whether it refuses NaN (1), infinities (2), both (3) or neither; None if nothing is
    # refused
    refuses: np.ndarray | None = None
    # The values that are checked to be finite: ``"rows"``, all ``"scores"``, or one ``"column"`` of the
    # scores
    telling: Literal["rows", "scores", "column"] = "rows"
    telling_column: int = 0  # that column


@dataclass
class Kept:
    """Objects that the description points to, kept alive at fixed addresses."""

    objects: list[Any] = field(default_factory=list)

    def array(self, kind: Any, values: Sequence[Any]) -> int | None:
        """Return the address of an array of structures or numbers; None if empty."""
        if not values:
            return None
        array = (kind * len(values))(*values)
        self.objects.append(array)
        return ctypes.addressof(array)

    def numpy(self, array: np.ndarray) -> int:
        """Return the address of an array's memory."""
        self.objects.append(array)
        return int(array.ctypes.data)

    def opened(self, owner: object, library: Library, model: Any, threads: int, prefix: str = "") -> int:
        """Open a model; it is closed after the last use of `owner`.

        `model`: its description, which points to these objects.
        `prefix`: prefix of the names of the library's functions.
        Raises `MemoryError` if there is no memory for it.
        """
        self.objects.append(model)
        handle = getattr(library, f"{prefix}open")(ctypes.addressof(model), threads)
        if not handle:
            raise MemoryError("there is no memory for the model.")
        # The description's objects must outlive the model.
        finalizer = weakref.finalize(owner, _close, library, f"{prefix}close", handle, self)
        # Daemon threads may be in calls when the interpreter exits.
        finalizer.atexit = False
        return int(handle)


def _close(library: Library, function: str, handle: int, kept: Kept) -> None:
    getattr(library, function)(handle)
    kept.objects.clear()


def model_of(kept: Kept, stages: Sequence[Stage], described: Described) -> c.Model:
    """Return a model's description, which points to objects in `kept`."""
    base = np.array(described.base, np.float64)
    refuses = described.refuses
    if refuses is not None:
        refuses = np.ascontiguousarray(refuses, np.uint8)
    return c.Model(
        version=c.VERSION,
        columns=described.columns,
        stages=kept.array(c.Stage, [_stage(kept, stage, len(stages) > 1) for stage in stages]),
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
        kernels = [
            _kernel(kept, entry, function) for entry, function in stage.kernels if entry.dtype == dtype
        ]
        sets.append(c.Kernels(kept.array(c.Kernel, kernels), len(kernels), TYPES[np.dtype(dtype)]))
    columns = kept.array(ctypes.c_int64, list(stage.columns)) if staged else None
    return c.Stage(kept.array(c.Kernels, sets), len(sets), columns, len(stage.columns), stage.outputs)


def _kernel(kept: Kept, entry: KernelEntry, function: Function) -> c.Kernel:
    signature = entry.signature
    tables = []
    for argument, contents in zip(signature.tables, entry.tables, strict=True):
        table = aligned(contents)
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
        type=TYPES[np.dtype(signature.scores.dtype)],
        takes_missing=entry.missing,
    )


def in_order(stage: Stage) -> list[KernelEntry]:
    """Return kernels in the order of the description."""
    entries = [entry for entry, _ in stage.kernels]
    return sorted(entries, key=lambda entry: entry.dtype)
