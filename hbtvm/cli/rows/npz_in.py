"""Sparse rows from ``.npz`` files."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hbtvm.cli.arguments import UsageError
from hbtvm.errors import missing_package
from hbtvm.runtime.rows.frames import NUMBERS
from hbtvm.runtime.rows.sparse import check_sparse
from hbtvm.runtime.unreadable import reason


class NpzFile:
    """A sparse matrix that scipy's ``save_npz`` wrote, read as a whole."""

    names: tuple[str, ...] | None = None

    def __init__(self, path: Path) -> None:
        sparse = scipy_sparse()
        check_unpacked(path)
        try:
            matrix = sparse.load_npz(path)  # never unpickles
            if matrix.ndim != 2:
                raise UsageError(f"{path}: the array's shape is {matrix.shape}, expected (rows, features)")
            if matrix.dtype.kind not in NUMBERS:
                raise UsageError(f"{path}: its values are {matrix.dtype}, expected numbers")
            check_sparse(matrix)
            self._matrix = matrix.tocsr()
        except (UsageError, MemoryError):
            raise
        except Exception as error:  # numpy, scipy and zipfile raise many kinds for damaged files
            if isinstance(error, OSError) and error.errno:
                raise
            raise UsageError(
                f"{path}: this is not a sparse matrix of scipy.sparse.save_npz ({reason(error)})"
            ) from error
        self.width = int(self._matrix.shape[1])

    def blocks(
        self, rows: int, read: Sequence[int], keep: Sequence[str] = ()
    ) -> Iterator[tuple[Any, list[Any]]]:
        """See `DataFile`."""
        for start in range(0, self._matrix.shape[0], rows):
            yield self._matrix[start : start + rows], []

    def close(self) -> None:
        """Do nothing."""


def check_unpacked(path: Path) -> None:
    """Raise a `UsageError` if an archive's members exceed this machine's memory."""
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
    except (zipfile.BadZipFile, ValueError, NotImplementedError):
        return  # the reader says what is wrong
    if size > os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"):
        raise UsageError(f"{path}: its arrays take {size:,} bytes, more than this machine's memory")


def scipy_sparse() -> Any:
    """Return the module `scipy.sparse`; raises `MissingPackageError` if it is not installed."""
    try:
        import scipy.sparse as sparse
    except ImportError:
        raise missing_package(".npz files of sparse rows need", "scipy", "scipy") from None
    return sparse
