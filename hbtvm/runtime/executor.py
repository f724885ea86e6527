"""Runs one kernel on any number of rows.

A kernel takes whole tiles of R rows: ``main(rows[n, R, F], *tables, scores[n, G, V, R])``.
Whole tiles are read where the caller's rows lie; the rest goes through one padded tile.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hbtvm.runtime.memory import aligned, empty, tensor
from hbtvm.runtime.parallelism import ALONE, Parallelism
from hbtvm.runtime.signature import ALIGNMENT, Signature
from hbtvm.runtime.threads import ThreadPool

Look = Callable[[np.ndarray], bool]

_BLOCK_BYTES = 1 << 18
"""Scores that have to be transposed are made in blocks of this size, which stay in the cache."""

_LARGE, _LOOK_BYTES = 1 << 22, 1 << 18
"""From the first size on, rows are looked at in blocks of the second, just before they are computed:
what one brings into the cache, the other finds there."""

_SPARE = 512
"""Scores of a call that are made in memory that is kept for it: finding an aligned place takes
microseconds."""

CHUNKS_PER_THREAD = 4
"""More chunks than threads, so that a thread that is held up does not hold up the call."""


class Executor:
    """One kernel with its tables; safe to call from several threads at once.

    Parameters
    ----------
    function
        The kernel, a `tvm_ffi.Function`.
    signature
        What it takes.
    tables
        Its tables in argument order.
    parallelism
        How threads share a call.
    brief, brief_tiles
        The kernel as a function that keeps the interpreter locked (see `loader`), and the most row
        tiles for which it is used, on the calling thread alone.
    pool
        The threads, if several executors are to share them; else the executor has its own.
    instead
        If the kernel cannot take missing values: the one that computes rows that have some.
    """

    def __init__(
        self,
        function: Any,
        signature: Signature,
        tables: Sequence[np.ndarray],
        parallelism: Parallelism = ALONE,
        *,
        brief: Any = None,
        brief_tiles: int = 0,
        pool: ThreadPool | None = None,
        instead: Executor | None = None,
    ) -> None:
        self._instead = instead
        # Explicitly, because an environment variable can turn the default off.
        function.release_gil = True
        self._function: Callable[..., Any] = function
        self._brief: Callable[..., Any] = brief if brief is not None else function
        self._signature = signature
        self._row_tile, self._n_features = signature.row_tile, signature.n_features
        row_tile = self._row_tile
        self._brief_rows = brief_tiles * row_tile
        self._tile_shape: tuple[int, ...] = (
            (row_tile, signature.width) if signature.by_row else (signature.groups, signature.width, row_tile)
        )
        self._outputs = signature.outputs
        self._dtype = np.dtype(signature.scores.dtype)
        self._direct = not signature.needs_epilogue
        # Chunks begin at multiples of this many tiles, where the scores are aligned.
        self._step = ALIGNMENT // math.gcd(ALIGNMENT, self._dtype.itemsize * self._outputs * row_tile)
        aligned_rows = self._step * row_tile
        block = _LOOK_BYTES // (aligned_rows * signature.row_bytes)
        self._look_rows = max(1, block) * aligned_rows

        splits = [argument.splits for argument in signature.tables]
        tree_tiles = next((len(table) for table, own in zip(tables, splits, strict=True) if own), 1)
        parts = min(parallelism.threads, tree_tiles) if parallelism.over == "trees" else 1
        self.parallelism = parallelism
        self._threads = parts if parallelism.over == "trees" else parallelism.threads
        self._pool = pool or (ThreadPool(self._threads) if self._threads > 1 else None)
        bounds = [tree_tiles * i // parts for i in range(parts + 1)]
        self._tables = [
            tuple(
                tensor(aligned(table[start:stop] if own else table))
                for table, own in zip(tables, splits, strict=True)
            )
            for start, stop in itertools.pairwise(bounds)
        ]
        self._spare: list[list[_Tile]] = [[] for _ in self._tables]
        self._spare_scores: list[np.ndarray] = []

    def check(self) -> None:
        """Have the kernel compare what it takes with what it gets here, in a call without rows.

        Raises
        ------
        ValueError
            If the two differ.
        """
        rows, scores = buffers(self._signature, 0)
        for tables in self._tables:
            try:
                self._function(tensor(rows), *tables, tensor(scores))
            except (ValueError, TypeError) as error:
                what = str(error).splitlines()[0].removesuffix(" when calling:")
                raise ValueError(f"its code takes other arguments than it is described to ({what})") from None

    def run(self, X: np.ndarray, look: Look | None = None) -> np.ndarray:
        """Sum the trees' values for each row.

        Parameters
        ----------
        X
            Shape (N, F), C-contiguous, native byte order, of the kernel's type.
        look
            Called with rows before they are computed, all of them or some at a time, on any thread.
            It tells whether they have no missing values, or raises an error that ends the call.

        Returns
        -------
        Of the type of the kernel's scores, shape (N, G * V): plain sums, without base score or divisor.
        """
        n = len(X)
        if look is not None and (X.nbytes < _LARGE or n <= self._row_tile or len(self._tables) > 1):
            if not look(X) and self._instead is not None:
                return self._instead.run(X)
            look = None
        function = self._brief if n <= self._brief_rows else self._function
        if n <= self._row_tile and len(self._tables) == 1:
            return self._one_tile(X, n, 0, function)
        threaded = self.parallelism.over == "rows" and self.parallelism.busy(n, self._row_tile) > 1
        if not threaded and len(self._tables) == 1 and look is None and n * self._outputs <= _SPARE:
            return self._few(X, function)
        out = empty((n, self._outputs), self._dtype)
        if len(self._tables) > 1:
            self._over_trees(X, out)
        elif threaded:
            self._over_rows(X, out, look)
        else:
            self._blocks(X, out, function, look)
        return out

    def _few(self, X: np.ndarray, function: Callable[..., Any]) -> np.ndarray:
        """Sums of few rows on this thread."""
        try:
            memory = self._spare_scores.pop()
        except IndexError:
            memory = empty((_SPARE,), self._dtype)
        out = memory[: len(X) * self._outputs].reshape(len(X), self._outputs)
        self._span(X, out, 0, function)
        self._spare_scores.append(memory)
        result: np.ndarray = out.copy()
        return result

    def run_one(self, X: np.ndarray, look: Look | None = None) -> float | None:
        """The only score of a single row; None where a row has several, or threads share the trees."""
        if self._outputs != 1 or len(self._tables) != 1:
            return None
        if look is not None and not look(X) and self._instead is not None:
            return self._instead.run_one(X)
        tile = self._take(0)
        tile.rows[:1] = X
        (self._brief if self._brief_rows else self._function)(*tile.arguments)
        score: float = tile.scores.item(0)
        self._spare[0].append(tile)
        return score

    def run_row(self, X: np.ndarray, cut: Callable[[np.ndarray], Any]) -> Any:
        """What `cut` makes of a single row's scores, float64, shape (1, outputs), which it must not keep."""
        tile = self._take(0)
        tile.rows[:1] = X
        (self._brief if self._brief_rows else self._function)(*tile.arguments)
        result = cut(tile.scores[:1])
        self._spare[0].append(tile)
        return result

    def _take(self, part: int) -> _Tile:
        """A tile that nobody uses."""
        # A list's pop and append are atomic: no two threads get the same tile.
        try:
            return self._spare[part].pop()
        except IndexError:
            return _Tile(self._signature, self._tables[part])

    def _one_tile(self, X: np.ndarray, n: int, part: int, function: Callable[..., Any]) -> np.ndarray:
        """Sums of up to R rows, copied into a tile that is kept for such calls."""
        tile = self._take(part)
        tile.rows[:n] = X
        function(*tile.arguments)
        result: np.ndarray = tile.scores[:n].copy()
        self._spare[part].append(tile)
        return result

    def _blocks(
        self, X: np.ndarray, out: np.ndarray, function: Callable[..., Any], look: Look | None
    ) -> None:
        """As `_span`, with a look at each block of rows first."""
        if look is None:
            self._span(X, out, 0, function)
            return
        for start in range(0, len(X), self._look_rows):
            rows, into = X[start : start + self._look_rows], out[start : start + self._look_rows]
            if look(rows) or self._instead is None:
                self._span(rows, into, 0, function)
            else:
                into[:] = self._instead.run(rows)

    def _span(self, X: np.ndarray, out: np.ndarray, part: int, function: Callable[..., Any]) -> None:
        """Sums of any number of rows on this thread; `out` is aligned."""
        tile = self._row_tile
        tiles = len(X) // tile
        whole = tiles * tile
        if tiles:
            rows = X[:whole].reshape(tiles, tile, self._n_features)
            if self._direct:
                scores = out[:whole].reshape(tiles, *self._tile_shape)
                function(tensor(rows), *self._tables[part], tensor(scores))
            else:
                self._transposed(rows, out[:whole], part, function)
        if whole < len(X):
            out[whole:] = self._one_tile(X[whole:], len(X) - whole, part, function)

    def _transposed(self, rows: np.ndarray, out: np.ndarray, part: int, function: Callable[..., Any]) -> None:
        tiles = len(rows)
        # (By-row scores need no transposing.)
        groups, width, tile = self._signature.groups, self._signature.width, self._row_tile
        block = min(tiles, max(1, _BLOCK_BYTES // (8 * self._outputs * tile)))
        scores = empty((block, groups, width, tile), np.float64)
        by_row = scores.transpose(0, 3, 1, 2)
        into = out.reshape(tiles, tile, groups, width)
        for start in range(0, tiles, block):
            stop = min(start + block, tiles)
            count = stop - start
            function(tensor(rows[start:stop]), *self._tables[part], tensor(scores[:count]))
            into[start:stop] = by_row[:count]

    def _over_rows(self, X: np.ndarray, out: np.ndarray, look: Look | None) -> None:
        assert self._pool is not None
        tiles = -(-len(X) // self._row_tile)
        chunks = min(tiles // self.parallelism.grain, CHUNKS_PER_THREAD * self._threads)
        size = -(-tiles // chunks)
        size = -(-size // self._step) * self._step * self._row_tile

        def work(i: int) -> None:
            mine = slice(i * size, (i + 1) * size)
            self._blocks(X[mine], out[mine], self._function, look)

        self._pool.run(work, -(-len(X) // size), self._threads)

    def _over_trees(self, X: np.ndarray, out: np.ndarray) -> None:
        assert self._pool is not None
        tile = self._row_tile
        size = max(1, _BLOCK_BYTES // (8 * self._outputs * tile)) * tile
        sums = [empty((min(size, len(X)), self._outputs), out.dtype) for _ in self._tables]
        for start in range(0, len(X), size):
            rows = X[start : start + size]

            def work(part: int, rows: np.ndarray = rows) -> None:
                self._span(rows, sums[part][: len(rows)], part, self._function)

            self._pool.run(work, len(sums), self._threads)
            into = out[start : start + size]
            np.add(sums[0][: len(rows)], sums[1][: len(rows)], out=into)
            for more in sums[2:]:
                into += more[: len(rows)]


class _Tile:
    """Memory for one tile of rows and its scores, bound to the kernel's arguments once."""

    __slots__ = ("arguments", "rows", "scores")

    def __init__(self, signature: Signature, tables: tuple[Any, ...]) -> None:
        rows, scores = buffers(signature, 1)
        # Rows that no caller filled are computed too, so they hold something harmless.
        rows.fill(0)
        by_row = scores[0] if signature.by_row else scores.reshape(-1, signature.row_tile).T
        self.rows, self.scores = rows[0], by_row
        self.arguments = (tensor(rows), *tables, tensor(scores))


def buffers(signature: Signature, tiles: int) -> tuple[np.ndarray, np.ndarray]:
    """Room for the rows and scores of a call on so many row tiles."""
    rows, scores = signature.rows, signature.scores
    return empty(rows.sizes(tiles=tiles), rows.dtype), empty(scores.sizes(tiles=tiles), scores.dtype)
