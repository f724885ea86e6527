"""`Table`: the output columns of a transformer, each as a raw column and the steps on it.

Most transformers apply the same function to each value of a column, or rearrange columns. So a pipeline up to
its last step is a list of columns, each a raw column of the input and steps. Selecting, concatenating and
dropping columns are operations on that list: columns that nothing reads are never computed, as they are not
in the list (Hummingbird, section 5.2: selection push-down). An operation on whole rows (`RowOperation`) makes
new columns out of a table.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from typing import Annotated, Any, overload

import numpy as np

from hbtvm.codec import Index, Via
from hbtvm.graph.columns.steps import Encode, Step, check_codes


@dataclass(frozen=True)
class Raw:
    """A column of the input, by its index."""

    index: Index


class RowOperation(ABC):
    """A function of whole rows; `reference` computes it as the library does.

    `takes_values`: whether `reference` takes Python values, such as texts, rather than numbers.
    """

    inputs: Table  # the columns that it reads
    width: int  # number of its columns
    takes_values = False

    @abstractmethod
    def reference(self, x: np.ndarray) -> np.ndarray:
        """Return the columns, shape (n, `width`), in the type of `x`.

        `x`: float32 or float64, shape (n, columns of `inputs`).
        """


@dataclass(frozen=True)
class Made:
    """A column of a row operation. (Operations are equal only if they are the same object.)"""

    operation: RowOperation
    index: Index


def _source(source: Any) -> Raw | Made:
    if not isinstance(source, tuple):
        return Raw(source)
    operation, index = source
    if index >= operation.width:
        raise ValueError(f"column {index} of an operation of {operation.width} columns")
    return Made(operation, index)


Source = Annotated[
    Raw | Made,
    Via(
        Index | tuple[RowOperation, Index],
        lambda source: source.index if isinstance(source, Raw) else (source.operation, source.index),
        _source,
    ),
]
"""The origin of a column's values."""


def raws_of(source: Raw | Made) -> set[int]:
    """Return the indices of the input's columns that a source depends on."""
    indices: set[int] = set()
    seen: set[int] = set()
    stack = [source]
    while stack:
        origin = stack.pop()
        if isinstance(origin, Raw):
            indices.add(origin.index)
        elif id(origin.operation) not in seen:
            seen.add(id(origin.operation))
            stack += (column.source for column in origin.operation.inputs.columns)
    return indices


@dataclass(frozen=True, eq=False, slots=True)
class Column:
    """Values of a source, and the steps on them."""

    source: Source
    steps: tuple[Step, ...] = ()
    # `allow_nan`, `allow_inf`: whether all transformers so far accept NaN (after the steps) and infinities
    allow_nan: bool = True
    allow_inf: bool = True

    def validate(self) -> None:
        """Raise `ValueError` for look-ups without codes."""
        check_codes(self.steps)

    def then(self, *steps: Step, finite: bool = False) -> Column:
        """Return the column with further steps, which refuse infinities if `finite`."""
        return Column(self.source, (*self.steps, *steps), self.allow_nan, self.allow_inf and not finite)

    @property
    def encoder(self) -> Encode | None:
        """The step that makes codes of values; None if there is none."""
        return next((step for step in self.steps if isinstance(step, Encode)), None)


class AllColumns(Sequence[Column]):
    """All columns of an operation, without steps. Items are created on access, as there may be many."""

    def __init__(self, operation: RowOperation) -> None:
        self.operation = operation

    def __len__(self) -> int:
        return self.operation.width

    @overload
    def __getitem__(self, at: int) -> Column: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Column]: ...
    def __getitem__(self, at: Any) -> Any:
        index = range(len(self))[at]
        if isinstance(index, range):
            return [self[i] for i in index]
        return Column(Made(self.operation, index))


class Joined(Sequence[Column]):
    """Columns of several sequences, one after the other."""

    def __init__(self, parts: Sequence[Sequence[Column]]) -> None:
        self.parts = tuple(parts)
        self._starts = [0, *accumulate(map(len, parts))]

    def __len__(self) -> int:
        return self._starts[-1]

    @overload
    def __getitem__(self, at: int) -> Column: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Column]: ...
    def __getitem__(self, at: Any) -> Any:
        index = range(len(self))[at]
        if isinstance(index, range):
            return [self[i] for i in index]
        part = bisect_right(self._starts, index) - 1
        return self.parts[part][index - self._starts[part]]


def parts_of(columns: Sequence[Column]) -> tuple[Sequence[Column], ...]:
    """Return the sequences that are joined; the columns themselves if they are not `Joined`."""
    return columns.parts if isinstance(columns, Joined) else (columns,)


def _listed(columns: Sequence[Column]) -> tuple[Column | RowOperation, ...]:
    """Return columns one by one, and operations in place of all of their columns."""
    listed: list[Column | RowOperation] = []
    for part in parts_of(columns):
        listed += (part.operation,) if isinstance(part, AllColumns) else part
    return tuple(listed)


def _columns(listed: Sequence[Column | RowOperation]) -> Sequence[Column]:
    """Return the columns that `_listed` listed."""
    parts: list[Sequence[Column]] = []
    for kind, group in groupby(listed, lambda entry: isinstance(entry, RowOperation)):
        some: Any = tuple(group)
        parts += map(AllColumns, some) if kind else [some]
    return parts[0] if len(parts) == 1 else Joined(parts)


@dataclass(frozen=True, eq=False)
class Table:
    """Columns side by side."""

    # From left to right; a tuple, `AllColumns` or `Joined`
    columns: Annotated[Sequence[Column], Via(tuple[Column | RowOperation, ...], _listed, _columns)]
    # Whether the library's rows are a sparse matrix, in which XGBoost takes zeros for missing; None if they
    # are as sparse as the caller's rows
    sparse: bool | None = False
    names: tuple[str, ...] | None = None  # as ``get_feature_names_out`` returns them

    def validate(self) -> None:
        """Raise `ValueError` if there are no columns, or another number of names."""
        if not self.columns or (self.names is not None and len(self.names) != len(self.columns)):
            raise ValueError(f"a table has {len(self)} columns, and their names are {self.names!r:.100}")

    def __len__(self) -> int:
        return len(self.columns)

    def select(self, indices: Sequence[int]) -> Table:
        """Return some of the columns, in the order of `indices`."""
        names = None if self.names is None else tuple(self.names[i] for i in indices)
        return Table(tuple(self.columns[i] for i in indices), self.sparse, names)


def side_by_side(
    tables: Sequence[Table], sparse: bool | None = False, names: tuple[str, ...] | None = None
) -> Table:
    """Return the columns of several tables as one table."""
    parts = [part for table in tables for part in parts_of(table.columns)]
    if any(isinstance(part, AllColumns) for part in parts):
        return Table(parts[0] if len(parts) == 1 else Joined(parts), sparse, names)
    return Table(tuple(column for part in parts for column in part), sparse, names)
