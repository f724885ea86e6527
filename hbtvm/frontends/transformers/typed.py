"""Types of columns' numbers, for transformers that compute in the rows' type.

A column of numbers has the type of the caller's rows, float32 or float64 ("input"). Encoders cast numbers to
their output type, the last step of their columns. Indicators alone are bools ("weak"): steps that read only
indicators compute in float64; beside other columns, indicators take the type of those.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

import numpy as np

from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.kernel_input import keeps_nan
from hbtvm.graph.columns.steps import Above, Cast, Fill, Function, IsMissing, Step
from hbtvm.graph.columns.table import AllColumns, Column, Made, Raw, Table
from hbtvm.graph.networks.network import Computed
from hbtvm.graph.refused_rows import RefusedTypes, differing

Kind = Literal["input", "float32", "float64", "weak"]


def kind_of(column: Column) -> Kind:
    """Return the type of a column's numbers."""
    for at, step in reversed(list(enumerate(column.steps))):
        if isinstance(step, Cast):
            mark = at > 0 and isinstance(column.steps[at - 1], IsMissing)
            return "weak" if mark else step.dtype
    if not isinstance(column.source, Made):
        return "input"
    operation = column.source.operation
    if isinstance(operation, Computed) and not operation.narrow:
        return "float64"
    # The type of the columns that it reads. An operation's columns that are not cast share a type.
    different = {}
    for read in operation.inputs.columns:
        plain = isinstance(read.source, Made) and not any(isinstance(step, Cast) for step in read.steps)
        different[id(read.source.operation) if plain and isinstance(read.source, Made) else id(read)] = read
    kinds = {kind_of(column) for column in different.values()}
    if "float64" in kinds:
        return "float64"
    return "float32" if kinds == {"float32"} else "input"


def unified(table: Table) -> Table:
    """Return the table in the columns' common type, as in an array.

    Transformers that compute begin with this, as numbers round differently in float32 and in float64.
    """
    if isinstance(table.columns, AllColumns):
        return table
    kinds = [kind_of(column) for column in table.columns]
    present = set(kinds)
    if "input" in present and "float64" not in present:
        # float32 beside float64 is float64, beside float32 it stays: the input's type in both cases.
        return _each(table, kinds, lambda kind, column: column if kind == "input" else _without_cast(column))
    if "float32" in present and len(present) == 2 and "weak" in present:
        narrow = Cast("float32")
        return _each(table, kinds, lambda kind, column: column if kind == "float32" else column.then(narrow))
    if len(present) < 2:
        return table
    return float64(table)


def float64(table: Table) -> Table:
    """Return the table with all of its numbers as float64."""
    if isinstance(table.columns, AllColumns):
        return table
    kinds = [kind_of(column) for column in table.columns]
    wide = Cast("float64")
    return _each(table, kinds, lambda kind, column: column if kind == "float64" else column.then(wide))


def _each(table: Table, kinds: Sequence[Kind], change: Callable[[Kind, Column], Column]) -> Table:
    return replace(table, columns=tuple(map(change, kinds, table.columns)))


def _without_cast(column: Column) -> Column:
    """Return a column without its last rounding, if codes or marks make that exact."""
    last = column.steps[-1]
    return replace(column, steps=column.steps[:-1]) if isinstance(last, Cast) else column


def accepting(table: Table, nan: bool = True, inf: bool = False) -> Table:
    """Return the table for a transformer that refuses infinities, or NaN as well."""
    if isinstance(table.columns, AllColumns):
        return table
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


def refuse_integers(
    table: Table, function: Callable[[np.ndarray], np.ndarray], where: Where, together: bool
) -> None:
    """Refuse types of the caller's integers for which a function differs from its float64 results.

    `table`: the columns that the function reads.
    `function`: the library's function, of a column or of arrays.
    `together`: whether the library first converts the columns to an array, of floats if there are any.
    """
    columns: dict[tuple[Step, ...], list[int]] = {}
    for column in table.columns:
        if isinstance(column.source, Raw) and all(map(_keeps_integers, column.steps)):
            columns.setdefault(column.steps, []).append(column.source.index)
        elif together:
            return
    by_types: dict[tuple[str, ...], set[int]] = {}
    for steps, indices in columns.items():
        by_types.setdefault(differing(partial(_after, steps, function)), set()).update(indices)
    where.rules.types_refused += [
        RefusedTypes(tuple(sorted(indices)), types, where.step, together)
        for types, indices in by_types.items()
        if types
    ]


def _keeps_integers(step: Step) -> bool:
    return isinstance(step, Function | Above) or (isinstance(step, Fill) and step.keeps_integers)


def _after(
    steps: tuple[Step, ...], function: Callable[[np.ndarray], np.ndarray], x: np.ndarray
) -> np.ndarray:
    for step in steps:
        # Integers are never missing, unless a number means that.
        if not isinstance(step, Fill) or (
            isinstance(step.missing, int | float) and step.missing == step.missing
        ):
            x = step.apply(x)
    return function(x)
