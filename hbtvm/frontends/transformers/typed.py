"""Which type of numbers a column has, as transformers that compute in it need to know.

A column of numbers is float32 or float64 as the caller's are ("input"); encoders make numbers of a type of
their own; indicators make bools, which take on the type of what they stand beside ("weak").
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from hbtvm.graph.lower import keeps_nan
from hbtvm.graph.steps import Cast, IsMissing
from hbtvm.graph.table import Column, Table

Kind = Literal["input", "float32", "float64", "weak"]


def kind_of(column: Column) -> Kind:
    """The type of a column's numbers."""
    for step in reversed(column.steps):
        if isinstance(step, Cast):
            return step.dtype
        if isinstance(step, IsMissing):
            return "weak"
    return "input"


def unified(table: Table) -> Table:
    """Return the table as one array has it: in the columns' common type.

    Transformers that compute begin with this, as numbers round differently in float32 and in float64.
    """
    kinds = [kind_of(column) for column in table.columns]
    present = set(kinds)
    if len(present) < 2 and present != {"weak"}:
        return table
    if "float64" in present or present == {"weak"}:
        wide = Cast("float64")
        columns = [
            column if kind == "float64" else column.then(wide)
            for column, kind in zip(table.columns, kinds, strict=True)
        ]
    elif "input" in present:
        # float32 beside float64 is float64, beside float32 it stays: the input's type in both cases.
        columns = [
            without_cast(column) if kind == "float32" else column
            for column, kind in zip(table.columns, kinds, strict=True)
        ]
    else:
        narrow = Cast("float32")
        columns = [
            column.then(narrow) if kind == "weak" else column
            for column, kind in zip(table.columns, kinds, strict=True)
        ]
    return replace(table, columns=tuple(columns))


def without_cast(column: Column) -> Column:
    """The column without rounding to float32 at its end: codes are exact in every type."""
    last = column.steps[-1]
    return replace(column, steps=column.steps[:-1]) if isinstance(last, Cast) else column


def accepting(table: Table, nan: bool = True, inf: bool = False) -> Table:
    """Return the table for a transformer that refuses infinities, or NaN as well."""
    return replace(table, columns=tuple(_accepting(column, nan, inf) for column in table.columns))


def _accepting(column: Column, nan: bool, inf: bool) -> Column:
    if column.encoder is not None:
        # Codes are neither.
        return column
    allow_nan = column.allow_nan and (nan or not keeps_nan(column.steps))
    allow_inf = column.allow_inf and inf
    if (allow_nan, allow_inf) == (column.allow_nan, column.allow_inf):
        return column
    return replace(column, allow_nan=allow_nan, allow_inf=allow_inf)
