"""The kernels for one type of rows: which run for a call, and on how many threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from hbtvm.errors import PackageError
from hbtvm.runtime.executor import Executor, Look
from hbtvm.runtime.package import KernelEntry
from hbtvm.runtime.plan import Planner, brief_tiles, sharing
from hbtvm.runtime.threads import ThreadPool


def scores_tell(entry: KernelEntry) -> bool:
    """Return whether all of a row's values enter its scores, so that those are finite only if all values are.

    So it is with linear models: no weight, not even 0, makes a finite term of NaN or infinity. Not so
    where NaN is replaced, or a column is a code or is not read.
    """
    tables = {argument.name: argument for argument in entry.signature.tables}
    if entry.strategy != "linear" or "weight" not in tables:
        return False
    every = tables["weight"].shape[0] == entry.signature.n_features
    return every and not {"feature", "filled", "code_feature"} & set(tables)


class KernelSet:
    """Kernels that take the same rows.

    Where some are for rows without missing values, those run whenever rows have none, and each of
    them leaves what it cannot take to the other that was made for the same number of rows.

    Parameters
    ----------
    entries, functions
        The kernels, and what `loader.load_functions` made of them.
    asked
        Threads that the user asked for; None for as many as tuned.
    pool
        The threads; None if there is only the caller's.

    Raises
    ------
    PackageError
        If a kernel's code takes other arguments than its entry says.
    """

    def __init__(
        self,
        entries: Sequence[KernelEntry],
        functions: Sequence[tuple[Any, Any]],
        asked: int | None,
        pool: ThreadPool | None,
    ) -> None:
        self._asked, self._pool = asked, pool
        made = list(zip(entries, functions, strict=True))
        chosen = [kernel for kernel in entries if kernel.missing]
        self._executors = [self._executor(kernel, f, None) for kernel, f in made if kernel.missing]
        complete = [(kernel, f) for kernel, f in made if not kernel.missing]
        if complete:
            sizes = [kernel.rows for kernel in chosen]
            nearest = [min(range(len(sizes)), key=lambda i: abs(sizes[i] - k.rows)) for k, _ in complete]
            self._executors = [
                self._executor(kernel, f, self._executors[i])
                for (kernel, f), i in zip(complete, nearest, strict=True)
            ]
            chosen = [kernel for kernel, _ in complete]
        self.planner = Planner(chosen, [self._threads(k) for k in chosen])

    def run(self, rows: np.ndarray, look: Look | None) -> np.ndarray:
        """Sum the trees' values for each row; see `executor.Executor.run`."""
        steps = self.planner.plan(len(rows))
        if len(steps) == 1:
            return self._executors[steps[0].kernel].run(rows, look)
        return np.concatenate([self._executors[k].run(rows[start:stop], look) for k, start, stop in steps])

    def run_one(self, row: np.ndarray, look: Look | None) -> float | None:
        """The only score of a single row; None where there are several, or threads share the trees."""
        return self._executors[self.planner.plan(1)[0].kernel].run_one(row, look)

    def run_row(self, row: np.ndarray, cut: Callable[[np.ndarray], Any]) -> Any:
        """What `cut` makes of a single row's scores; see `executor.Executor.run_row`."""
        return self._executors[self.planner.plan(1)[0].kernel].run_row(row, cut)

    def _threads(self, kernel: KernelEntry) -> int:
        """Threads of one kernel: as many as the user asked for, or as tuned."""
        return self._asked or min(kernel.threads, 1 if self._pool is None else self._pool.threads)

    def _executor(
        self, kernel: KernelEntry, functions: tuple[Any, Any], instead: Executor | None
    ) -> Executor:
        made = Executor(
            functions[0],
            kernel.signature,
            kernel.tables,
            sharing(kernel, self._threads(kernel)),
            brief=functions[1],
            brief_tiles=brief_tiles(kernel),
            pool=self._pool,
            instead=instead,
        )
        try:
            made.check()
        except ValueError as error:
            raise PackageError(
                f"the package is damaged: of the kernel for {kernel.rows} rows, {error}."
            ) from None
        return made


def kernel_sets(
    entries: Sequence[KernelEntry],
    functions: Iterator[tuple[Any, Any]],
    asked: int | None,
    pool: ThreadPool | None,
) -> dict[np.dtype, KernelSet]:
    """Kernels by the type of rows that they take.

    Parameters
    ----------
    functions
        What `loader.load_functions` made; as many are taken as there are kernels.
    asked, pool
        As for `KernelSet`.
    """
    made = [(entry, next(functions)) for entry in entries]
    sets: dict[np.dtype, KernelSet] = {}
    for dtype in sorted({entry.dtype for entry in entries}):
        own = [(entry, function) for entry, function in made if entry.dtype == dtype]
        sets[np.dtype(dtype)] = KernelSet(
            [entry for entry, _ in own], [function for _, function in own], asked, pool
        )
    return sets
