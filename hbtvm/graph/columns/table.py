"""`Table`: what comes out of a transformer, column by column, in terms of what came in.

Most transformers do the same to every row of a column without looking at others, or rearrange columns. So a
pipeline up to its last step is a list of columns, each a raw column of the input and the steps on it.
Selecting, concatenating and dropping columns are operations on that list: columns that nothing reads are
never computed, as they are not in the list (Hummingbird, section 5.2: selection push-down). An operation that
does look at whole rows (`RowOperation`) makes new columns out of a table.
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
    width: int  # columns that it makes
    takes_values = False

    @abstractmethod
    def reference(self, x: np.ndarray) -> np.ndarray:
        """From float32 or float64, shape (n, columns of `inputs`), to the same type, shape (n, `width`)."""


@dataclass(frozen=True)
class Made:
    """A column that a row operation makes. (Operations are equal only if they are the same object.)"""

    operation: RowOperation
    index: Index


def _source(given: Any) -> Raw | Made:
    if not isinstance(given, tuple):
        return Raw(given)
    operation, index = given
    if index >= operation.width:
        raise ValueError(f"column {index} of an operation that makes {operation.width}")
    return Made(operation, index)


Source = Annotated[
    Raw | Made,
    Via(
        Index | tuple[RowOperation, Index],
        lambda source: source.index if isinstance(source, Raw) else (source.operation, source.index),
        _source,
    ),
]
"""Where the values of a column come from."""


def raws_of(source: Raw | Made) -> set[int]:
    """The input's columns that a source is made of, by their indices."""
    found: set[int] = set()
    seen: set[int] = set()
    stack = [source]
    while stack:
        one = stack.pop()
        if isinstance(one, Raw):
            found.add(one.index)
        elif id(one.operation) not in seen:
            seen.add(id(one.operation))
            stack += (column.source for column in one.operation.inputs.columns)
    return found


@dataclass(frozen=True, eq=False, slots=True)
class Column:
    """Raw or made values, and the steps on them.

    `where`: the column in the words of an error.
    """

    source: Source  # where the values come from
    steps: tuple[Step, ...] = ()  # from the first to the last
    # `allow_nan`, `allow_inf`: whether everything so far takes NaN (after the steps so far: a `Fill` leaves
    # none) and infinities
    allow_nan: bool = True
    allow_inf: bool = True

    def validate(self) -> None:
        """Refuse look-ups without codes."""
        check_codes(self.steps)

    def then(self, *steps: Step, finite: bool = False) -> Column:
        """Return the column with further steps, which refuse infinities if `finite`."""
        return Column(self.source, (*self.steps, *steps), self.allow_nan, self.allow_inf and not finite)

    @property
    def encoder(self) -> Encode | None:
        """The step that makes codes of values, if there is one."""
        return next((step for step in self.steps if isinstance(step, Encode)), None)


class AllColumns(Sequence[Column]):
    """All columns of an operation, as they come. Each is made when it is asked for, as there may be many."""

    def __init__(self, operation: RowOperation) -> None:
        self.operation = operation

    def __len__(self) -> int:
        return self.operation.width

    @overload
    def __getitem__(self, at: int) -> Column: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[Column]: ...
    def __getitem__(self, at: Any) -> Any:
        found = range(len(self))[at]
        if isinstance(found, range):
            return [self[one] for one in found]
        return Column(Made(self.operation, found))


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
        found = range(len(self))[at]
        if isinstance(found, range):
            return [self[one] for one in found]
        part = bisect_right(self._starts, found) - 1
        return self.parts[part][found - self._starts[part]]


def parts_of(columns: Sequence[Column]) -> tuple[Sequence[Column], ...]:
    """The sequences that columns are joined of; one, if they are not."""
    return columns.parts if isinstance(columns, Joined) else (columns,)


def _listed(columns: Sequence[Column]) -> tuple[Column | RowOperation, ...]:
    """Columns one by one, and an operation in place of all columns that it makes."""
    parts = parts_of(columns)
    return tuple(
        one for part in parts for one in ((part.operation,) if isinstance(part, AllColumns) else part)
    )


def _columns(listed: Sequence[Column | RowOperation]) -> Sequence[Column]:
    """The way back."""
    parts: list[Sequence[Column]] = []
    for kind, group in groupby(listed, lambda one: isinstance(one, RowOperation)):
        some: Any = tuple(group)
        parts += map(AllColumns, some) if kind else [some]
    return parts[0] if len(parts) == 1 else Joined(parts)


@dataclass(frozen=True, eq=False)
class Table:
    """Columns side by side."""

    # From left to right; a tuple, `AllColumns` or `Joined`
    columns: Annotated[Sequence[Column], Via(tuple[Column | RowOperation, ...], _listed, _columns)]
    # Whether the library has these rows as a sparse matrix, in which XGBoost takes zeros for missing; None if
    # they are sparse where the caller's rows are
    sparse: bool | None = False
    # Names of the columns as ``get_feature_names_out`` gives them; None where they have none
    names: tuple[str, ...] | None = None

    def validate(self) -> None:
        """Refuse a table without columns, or with other names."""
        if not self.columns or (self.names is not None and len(self.names) != len(self.columns)):
            raise ValueError(f"a table has {len(self)} columns, and their names are {self.names!r:.100}")

    def __len__(self) -> int:
        return len(self.columns)

    def select(self, indices: Sequence[int]) -> Table:
        """Return some of the columns, in the order of their indices."""
        names = None if self.names is None else tuple(self.names[i] for i in indices)
        return Table(tuple(self.columns[i] for i in indices), self.sparse, names)


def side_by_side(
    tables: Sequence[Table], sparse: bool | None = False, names: tuple[str, ...] | None = None
) -> Table:
    """Return one table of the columns of several."""
    parts = [part for table in tables for part in parts_of(table.columns)]
    if any(isinstance(part, AllColumns) for part in parts):
        return Table(parts[0] if len(parts) == 1 else Joined(parts), sparse, names)
    return Table(tuple(column for part in parts for column in part), sparse, names)
