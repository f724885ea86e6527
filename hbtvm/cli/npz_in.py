"""Sparse rows from ``.npz`` files."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hbtvm.cli.arguments import UsageError


class NpzFile:
    """A sparse matrix that scipy's ``save_npz`` wrote, read as a whole: it is smaller than its rows."""

    names: tuple[str, ...] | None = None

    def __init__(self, path: Path) -> None:
        sparse = scipy_sparse()
        try:
            self._matrix = sparse.load_npz(path).tocsr()  # never unpickles
        except (ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise UsageError(
                f"{path}: this is no sparse matrix as scipy.sparse.save_npz writes it ({error})"
            ) from error
        if self._matrix.ndim != 2:
            raise UsageError(f"{path}: the array's shape is {self._matrix.shape}, expected (rows, features)")
        self.width = int(self._matrix.shape[1])

    def blocks(self, rows: int, keep: Sequence[int]) -> Iterator[Any]:
        """See `DataFile`."""
        for start in range(0, self._matrix.shape[0], rows):
            yield self._matrix[start : start + rows]

    def close(self) -> None:
        """There is nothing open."""


def scipy_sparse() -> Any:
    """The module `scipy.sparse`.

    Raises
    ------
    UsageError
        If it is not installed.
    """
    try:
        import scipy.sparse as sparse
    except ImportError:
        raise UsageError("for .npz files of sparse rows scipy is needed: pip install scipy") from None
    return sparse
