"""Stages of kernels on a device: the kernels that run in sequence, and where each finds its columns.

Each stage's columns lie by rows, after those of earlier stages. A kernel reads its columns in place if they
are all columns of one source and of the kernel's type; otherwise they are first gathered into a matrix.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from hbtvm.runtime.package.entry import Package
from hbtvm.runtime.package.kernel import KernelEntry

ROWS = -1
"""The rows' number among the sources of columns; stages count from 0."""

ALIGNED_ROWS = 32
"""Stages' columns are padded to a multiple of this many rows, and so begin at a multiple of 256 bytes."""

Steps = Sequence[tuple[KernelEntry, Sequence[int]]]
"""Each stage's kernel, and the columns that it reads of the matrix: first the rows' columns, then each
stage's. The last kernel computes the scores."""


@dataclass(frozen=True)
class Source:
    """Where a kernel finds its columns.

    `stage`: the source that is read in place; None if columns are gathered.
    `table`: for the gather kernel (see `hbtvm.compiler.lowering.gather`); None without one.
    `converts`: whether the gather kernel converts the rows' columns.
    """

    stage: int | None
    table: np.ndarray | None = None
    converts: bool = False


class Layout:
    """Columns of rows and stages.

    `n_features`: columns of the rows; `single`: whether they are float32.
    `widths`: columns of each stage.
    """

    def __init__(self, n_features: int, single: bool, widths: Sequence[int]) -> None:
        self.n_features, self.single, self.widths = n_features, single, widths
        self.ahead: list[int] = [0, *itertools.accumulate(widths)]
        """Columns of all stages before each stage, and of all."""

    def source(self, columns: Sequence[int], narrow: bool, converts: bool = False) -> Source:
        """Return the source of a kernel's columns.

        `narrow`: whether it reads float32.
        `converts`: whether the gather kernel converts rows for it, which it can't read in place.
        """
        bounds = self.n_features + np.array(self.ahead)
        table = np.zeros((len(columns), 3), np.int32)
        stages = []
        for at, column in enumerate(columns):
            stage = int(np.searchsorted(bounds, column, side="right")) - 1
            stages.append(stage)
            if stage == ROWS:
                table[at] = column, 0, 0
            else:
                table[at] = column - bounds[stage], self.ahead[stage], self.widths[stage]
        first = stages[0]
        width = self.n_features if first == ROWS else self.widths[first]
        whole = set(stages) == {first} and table[:, 0].tolist() == list(range(width))
        unchanged = narrow == (first == ROWS and self.single) and not (converts and first == ROWS)
        if whole and unchanged:
            return Source(first)
        return Source(None, table, converts)


def steps_of(package: Package) -> dict[np.dtype, list[tuple[int, Steps]]]:
    """Return, by type of rows, pairs of a number of rows that kernels were tuned for and the kernels."""
    steps: dict[np.dtype, list[tuple[int, Steps]]] = {}
    if not package.stages:
        for kernel in sorted(package.kernels, key=lambda entry: entry.dtype):
            steps.setdefault(np.dtype(kernel.dtype), []).append((kernel.rows, [(kernel, package.columns)]))
        return steps
    stages = [(stage.kernels, stage.columns) for stage in package.stages] + [
        (package.kernels, package.columns)
    ]
    for dtype in (np.dtype(np.float32), np.dtype(np.float64)):
        steps[dtype] = []
        for rows in sorted({kernel.rows for kernel in package.all_kernels}):
            chosen = []
            for kernels, columns in stages:
                candidates = _of_type(kernels, dtype, all(column < package.n_read for column in columns))
                nearest = _nearest([math.log(kernel.rows) for kernel in candidates], rows)
                chosen.append((candidates[nearest], columns))
            steps[dtype].append((rows, chosen))
    return steps


def _of_type(kernels: Sequence[KernelEntry], dtype: np.dtype, rows_alone: bool) -> list[KernelEntry]:
    """Return a stage's kernels for rows of a type: those of that type, if they read only rows.

    Otherwise, or if there are none, those of the widest type, since stages' columns are float64.
    """
    matching = [kernel for kernel in kernels if kernel.dtype == dtype] if rows_alone else []
    widest = max(kernel.dtype for kernel in kernels)  # "float64" > "float32" as strings, too
    return matching or [kernel for kernel in kernels if kernel.dtype == widest]


def _nearest(logs: Sequence[float], rows: int) -> int:
    """Return the index of the number nearest to `rows` by ratio, from logarithms of the numbers."""
    at = math.log(rows)
    return min(range(len(logs)), key=lambda k: abs(logs[k] - at))
