"""`RecursiveFront`: a package's recursive model, in front of the kernels that read its readout as rows."""

from __future__ import annotations

from typing import Any

import numpy as np

from hbtvm.errors import InputError, PackageError
from hbtvm.runtime.cpu import check_cpu
from hbtvm.runtime.entry import Package
from hbtvm.runtime.native.library import load_library
from hbtvm.runtime.recursive.host import RecursiveHost


class RecursiveFront:
    """A package's recursive model, opened.

    Parameters
    ----------
    package
        With a recursive model and an executor.
    threads
        Threads that work on a call at most; None for as many as it was tuned for.

    Raises
    ------
    PackageError
        If this machine can't run it, or it is damaged.
    """

    def __init__(self, package: Package, threads: int | None) -> None:
        assert package.recursion is not None
        check_cpu(package.target)
        library = load_library(package.executor)
        self.host = RecursiveHost(library, package.recursion, threads or 0)
        try:
            self.host.check()
        except ValueError as error:
            raise PackageError(f"the package is damaged: {error}.") from None

    def rows(self, structures: Any) -> np.ndarray:
        """What is read of the states of structures, as rows; see `RecursiveHost.run`.

        Raises
        ------
        InputError
            If these are no structures of this model, or there is nothing to read.
        """
        rows = self.host.run(structures)
        if not len(rows):
            raise InputError("expected at least one structure with a node, got none.")
        return rows
