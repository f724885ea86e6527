"""Models of several kernels: a block of rows goes through all of them before the next one does.

All kernels read columns of one matrix of float64: first the rows, then what each stage makes of them. A block
is so small that its matrix stays in the cache.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from hbtvm.runtime.kernels import KernelSet

_BLOCK_BYTES = 1 << 19
"""Size of a block's matrix, for each thread."""

_LEAST_ROWS = 512
"""Rows of a block, however wide the matrix is: calls have costs of their own."""

Kernels = Mapping[np.dtype, KernelSet]
"""By type of rows."""


class _Reader:
    """One stage's kernels, and which columns they read.

    Parameters
    ----------
    columns
        Of the matrix.
    width
        Columns of the matrix.
    n_features
        How many of these come with the rows.
    """

    def __init__(self, kernels: Kernels, columns: Sequence[int], width: int, n_features: int) -> None:
        self._kernels = kernels
        self._rows_alone = all(column < n_features for column in columns)
        first, stop = columns[0], columns[0] + len(columns)
        side_by_side = list(columns) == list(range(first, stop))
        self._all = side_by_side and (first, stop) == (0, n_features if self._rows_alone else width)
        self._columns = slice(first, stop) if side_by_side else np.array(columns)
        # What stages make is float64.
        self._wide = np.dtype(np.float64) if np.dtype(np.float64) in kernels else np.dtype(np.float32)

    def run(self, rows: np.ndarray, matrix: np.ndarray) -> np.ndarray:
        """Scores, float64, shape (n, outputs)."""
        source, dtype = (rows, rows.dtype) if self._rows_alone else (matrix, self._wide)
        kernels = self._kernels.get(dtype)
        if kernels is None:
            kernels, dtype = self._kernels[self._wide], self._wide
        if not self._all:
            source = source[:, self._columns]
        if source.dtype != dtype:
            with np.errstate(over="ignore"):
                source = source.astype(dtype)
        return kernels.run(np.ascontiguousarray(source), None)


class Staged:
    """Kernels that run one after the other.

    Parameters
    ----------
    stages
        The kernels of each stage, the columns of the matrix that it reads, and how many it makes; the last
        one makes the scores.
    n_features
        Columns of the rows.
    threads
        How many work on a block.
    """

    def __init__(
        self, stages: Sequence[tuple[Kernels, Sequence[int], int]], n_features: int, threads: int
    ) -> None:
        self._n_features, self._outputs = n_features, stages[-1][2]
        self._ends = [n_features, *(n_features + np.cumsum([one[2] for one in stages[:-1]])).tolist()]
        self._width = width = self._ends[-1]
        self._readers = [_Reader(kernels, columns, width, n_features) for kernels, columns, _ in stages]
        self._block = max(_LEAST_ROWS, threads * _BLOCK_BYTES // (8 * self._width))

    def run(self, rows: np.ndarray) -> np.ndarray:
        """What the last kernel makes of rows.

        Parameters
        ----------
        rows
            float32 or float64, shape (n, n_features), C-contiguous.

        Returns
        -------
        float64, shape (n, outputs): plain sums, without base score or divisor.
        """
        if len(rows) <= self._block:
            return self._of_block(rows)
        out = np.empty((len(rows), self._outputs))
        for start in range(0, len(rows), self._block):
            out[start : start + self._block] = self._of_block(rows[start : start + self._block])
        return out

    def _of_block(self, rows: np.ndarray) -> np.ndarray:
        matrix = np.empty((len(rows), self._width))
        matrix[:, : self._n_features] = rows
        *stages, last = self._readers
        for i, stage in enumerate(stages):
            matrix[:, self._ends[i] : self._ends[i + 1]] = stage.run(rows, matrix)
        return last.run(rows, matrix)
