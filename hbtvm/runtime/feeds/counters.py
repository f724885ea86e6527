"""The columns of a matrix that are CatBoost's counters and one-hot columns."""

from __future__ import annotations

import contextlib
import ctypes
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from hbtvm.errors import InputError
from hbtvm.graph.columns.counters import HASH, Counters
from hbtvm.graph.columns.evaluate import Evaluator, of_numbers
from hbtvm.graph.columns.feeds import Feed
from hbtvm.graph.columns.hashes import HashText
from hbtvm.graph.columns.step_groups import kind_of
from hbtvm.graph.columns.steps import Cast, Fill, Lookup, is_nan
from hbtvm.graph.columns.table import Column, Made, Raw, RowOperation
from hbtvm.runtime.codes.hashes import HashCoder
from hbtvm.runtime.native.counters import (
    AS_IT_IS,
    ROUNDED,
    ROUNDED_NAN_HIGH,
    CounterFunctions,
    CounterKernel,
)
from hbtvm.runtime.rows.columns import ColumnReader
from hbtvm.runtime.rows.matrix import fill_columns
from hbtvm.runtime.rows.raw import RawColumn, number
from hbtvm.runtime.threads import ThreadPool

_CHUNK = 1 << 9  # fewest rows for a thread
_SINGLE, _DOUBLE = ctypes.c_float, ctypes.c_double
_F64 = np.dtype(np.float64)


def counts(operation: RowOperation) -> bool:
    """Return whether `CounterFeeds` computes an operation."""
    if not isinstance(operation, Counters):
        return False
    hashed = [_is_hash(column) for column in operation.inputs.columns]
    if not all(hashed[column] for column in operation.column[operation.test == HASH].tolist()):
        return False
    return all(map(_is_known, operation.inputs.columns, hashed))


def _is_hash(column: Column) -> bool:
    return isinstance(column.source, Raw) and len(column.steps) == 1 and isinstance(column.steps[0], HashText)


def _is_known(column: Column, hashed: bool) -> bool:
    """Return whether a column is a hash, or a number computed from one by steps on numbers."""
    numbers = all(kind_of(step) is not None and not isinstance(step, Lookup) for step in column.steps)
    return hashed or (isinstance(column.source, Raw) and numbers)


class _Input(NamedTuple):
    """A column that an operation reads."""

    raw: int  # the input's column
    coder: HashCoder | None  # of categories
    where: str  # the column, for errors
    kind: int  # the steps of numbers in C
    column: Column | None  # the steps of numbers, if numpy has to compute them


class CounterFeeds:
    """Computes these columns, in C once the package's executor is loaded, else in numpy.

    `feeds`: all columns of the matrix.
    `places`: positions of those computed by operations for which `counts` is true.
    `columns`: names the input's columns.
    `beside`: the matrix's other columns, whose numbers `row` copies.
    `pool`: threads that share long calls; None for the calling thread only.
    `raws`: the input's columns of all operations, one after the other.
    """

    def __init__(
        self,
        feeds: Sequence[Feed],
        places: Sequence[int],
        columns: ColumnReader,
        beside: Sequence[int],
        pool: ThreadPool | None,
    ) -> None:
        self._width, self._beside = len(feeds), np.array(beside, np.int64)
        self._beside_address = self._beside.ctypes.data
        by_operation: dict[Counters, dict[int, int]] = {}
        for j in places:
            source = feeds[j].source
            assert isinstance(source, Made) and isinstance(source.operation, Counters)
            by_operation.setdefault(source.operation, {})[j] = source.index
        self._operations = [
            _Operation(operation, read, columns, pool) for operation, read in by_operation.items()
        ]
        self.raws = [entry.raw for operation in self._operations for entry in operation.inputs]

    def use(self, functions: CounterFunctions | None) -> None:
        """Compute in C from now on; with None, an executor of an earlier release, in numpy."""
        for operation in self._operations:
            operation.use(functions)

    def row(self, values: Sequence[Any], numbers: Sequence[float], dtype: np.dtype) -> np.ndarray:
        """Return the matrix of a row, shape (1, columns).

        `values`: in the order of `raws`.
        `numbers`: of the columns `beside`.
        `dtype`: float32 or float64.
        Raises `InputError` if a value is no category, or no number.
        """
        out = ((_SINGLE if dtype == np.float32 else _DOUBLE) * self._width)()
        matrix: np.ndarray = np.frombuffer(out, dtype).reshape(1, -1)  # type: ignore[call-overload]
        first = 0
        for operation in self._operations:
            last = first + len(operation.inputs)
            read, kernel = operation.read_row(values[first:last]), operation.kernel
            if kernel is None:
                operation.in_numpy(np.array([read], _F64).T, matrix)
                with np.errstate(over="ignore"):
                    matrix[0, self._beside] = numbers
            else:
                x = (_DOUBLE * (len(read) + len(numbers)))(*read, *numbers)
                kernel.row(x, self._beside_address, len(numbers), out)
            first = last
        return matrix

    def blocks(
        self,
        parts: Mapping[int, np.ndarray],
        columns: Mapping[int, RawColumn],
        n: int,
        most: int,
        dtype: np.dtype,
    ) -> Iterator[np.ndarray]:
        """Yield the matrix of n rows in blocks, all in the same memory; a single block if n is `most`.

        `parts`: the columns beside counters, by their places.
        `columns`: the input's columns.
        `most`: rows of a block.
        `dtype`: float32 or float64.
        Raises `InputError` as `row`.
        """
        inputs = [operation.read(columns, n) for operation in self._operations]
        matrix = np.empty((min(n, most), self._width), dtype)
        for first in range(0, max(n, 1), max(most, 1)):
            last = min(first + most, n)
            block = matrix[: last - first]
            with np.errstate(over="ignore"):
                fill_columns({j: x[first:last] for j, x in parts.items()}, block)
            for operation, x in zip(self._operations, inputs, strict=True):
                operation.fill(x, first, last, block)
            yield block


class _Operation:
    """An operation and the columns that it reads.

    `read`: by the matrix's column, the operation's.
    """

    def __init__(
        self, operation: Counters, read: Mapping[int, int], columns: ColumnReader, pool: ThreadPool | None
    ) -> None:
        self._operation, self._pool = operation, pool
        self._places, self._read = list(read), list(read.values())
        self.inputs = [_input(column, columns) for column in operation.inputs.columns]
        # Inputs whose steps numpy computes.
        self._steps = [i for i, entry in enumerate(self.inputs) if entry.column is not None]
        self.kernel: CounterKernel | None = None

    def use(self, functions: CounterFunctions | None) -> None:
        if functions is None:
            return
        columns = np.full(self._operation.width, -1)
        columns[self._read] = self._places
        kinds = [entry.kind for entry in self.inputs]
        with contextlib.suppress(ValueError):  # numpy looks up tables that C can't hold
            self.kernel = CounterKernel(functions, self._operation, kinds, columns.tolist())
        for entry in self.inputs:
            if entry.coder is not None:
                entry.coder.hash_texts = functions.hash_texts

    def read_row(self, values: Sequence[Any]) -> list[float]:
        """Return the inputs of a row."""
        read = [
            number(value, entry.where) if entry.coder is None else entry.coder.of_value(value)
            for entry, value in zip(self.inputs, values, strict=True)
        ]
        for i in self._steps:
            read[i] = float(_computed(self.inputs[i], np.array([read[i]], _F64))[0])
        return read

    def read(self, columns: Mapping[int, RawColumn], n: int) -> np.ndarray:
        """Return the inputs of rows, float64, shape (inputs, n)."""
        x = np.empty((len(self.inputs), n))
        for i, entry in enumerate(self.inputs):
            column = columns[entry.raw]
            if entry.coder is not None:
                x[i] = column.codes(entry.coder)
                continue
            x[i] = column.numbers(entry.where)
            if entry.column is not None:
                x[i] = _computed(entry, x[i])
        return x

    def fill(self, x: np.ndarray, first: int, last: int, matrix: np.ndarray) -> None:
        kernel, n, rows = self.kernel, x.shape[1], last - first
        if kernel is None:
            self.in_numpy(x[:, first:last].copy(), matrix)
            return
        address, chunks = x.ctypes.data + 8 * first, 1
        if self._pool is not None:
            chunks = max(1, min(4 * self._pool.threads, rows // _CHUNK))
        if chunks == 1 or self._pool is None:
            kernel(address, n, 0, rows, matrix)
            return
        cuts = [rows * i // chunks for i in range(chunks + 1)]
        self._pool.run(lambda i: kernel(address, n, cuts[i], cuts[i + 1], matrix), chunks)

    def in_numpy(self, x: np.ndarray, matrix: np.ndarray) -> None:
        """Compute the columns from inputs, shape (inputs, n)."""
        with np.errstate(over="ignore"):
            for i, (entry, column) in enumerate(
                zip(self.inputs, self._operation.inputs.columns, strict=True)
            ):
                if entry.kind != AS_IT_IS:
                    x[i] = of_numbers(column.steps, x[i])
        matrix[:, self._places] = self._operation.reference(x.T)[:, self._read]


def _input(column: Column, columns: ColumnReader) -> _Input:
    assert isinstance(column.source, Raw)
    raw, steps = column.source.index, column.steps
    if isinstance(steps[0] if steps else None, HashText):
        step = steps[0]
        assert isinstance(step, HashText)
        return _Input(raw, HashCoder(step), step.where, AS_IT_IS, None)
    kind = _kind(column)
    plain = kind != AS_IT_IS or (not steps and column.allow_nan and column.allow_inf)
    return _Input(raw, None, columns.name(raw), kind, None if plain else column)


def _kind(column: Column) -> int:
    """Return how C computes a column of numbers; `AS_IT_IS` if it does not."""
    first, *rest = column.steps or (None,)
    rounds = isinstance(first, Cast) and first.dtype == "float32"
    if not (rounds and column.allow_nan and column.allow_inf):
        return AS_IT_IS
    if not rest:
        return ROUNDED
    high = isinstance(rest[0], Fill) and rest[0].value == math.inf and is_nan(rest[0].missing)
    return ROUNDED_NAN_HIGH if len(rest) == 1 and high else AS_IT_IS


def _computed(entry: _Input, x: np.ndarray) -> np.ndarray:
    """Return numbers after the steps of their column, shape (n,)."""
    assert entry.column is not None
    try:
        with np.errstate(all="ignore"):
            return Evaluator({entry.raw: x}).checked(entry.column)
    except InputError as error:
        raise InputError(f"{entry.where}: {error.args[0]}", error.row) from None
