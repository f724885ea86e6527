"""Steps whose results for float32 rows differ from those for the same numbers in float64."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import takewhile

import numpy as np

from hbtvm.graph.columns.curves import Bins, Quantile
from hbtvm.graph.columns.steps import Above, Arithmetic, Cast, Function, Step
from hbtvm.graph.columns.table import AllColumns, Column, Made, Raw, Table
from hbtvm.graph.networks.network import TableRows, Trees
from hbtvm.graph.networks.scope import is_computed
from hbtvm.graph.networks.step_nodes import has_node
from hbtvm.operators.base import Node


def compares_apart(steps: Sequence[Step]) -> bool:
    """Return whether steps compare float32 rows with other numbers than float64 rows.

    numpy rounds a Python number to float32 before it compares float32 values with it, and arithmetic rounds
    to the values' type.
    """
    rounded = False
    for step in steps:
        number = step.threshold if isinstance(step, Above) else getattr(step, "missing", None)
        compares = isinstance(number, int | float) and number == number
        if compares and float(np.float32(number)) != number:
            return True
        if rounded and (compares or isinstance(step, Bins) or (isinstance(step, Quantile) and step.ties)):
            return True
        rounded |= isinstance(step, Arithmetic)
    return False


def rounds_apart(steps: Sequence[Step]) -> bool:
    """Return whether steps round float32 rows to float32, but not float64 rows."""
    before = takewhile(lambda step: not isinstance(step, Cast), steps)
    return any(isinstance(step, Arithmetic | Function) and has_node(step) for step in before)


def mixes(node: Node) -> bool:
    """Return whether trees read columns that are rounded apart beside columns of a network."""
    if not isinstance(node, Trees) or not isinstance(node.x, TableRows):
        return False
    columns = node.x.table.columns
    computed = any(is_computed(column.source) for column in columns)
    return computed and any(map(rounded_apart, columns))


def rounded_apart(column: Column) -> bool:
    """Return whether a column of the rows is rounded apart; see `rounds_apart`."""
    return isinstance(column.source, Raw) and rounds_apart(column.steps)


def table_compares_apart(table: Table, seen: set[int]) -> bool:
    """Return whether a step of a table, or of the tables behind it, compares float32 rows apart."""
    if isinstance(table.columns, AllColumns):
        return False
    tables: list[Table] = []
    for column in table.columns:
        if compares_apart(column.steps):
            return True
        if isinstance(column.source, Made) and id(column.source.operation) not in seen:
            seen.add(id(column.source.operation))
            tables.append(column.source.operation.inputs)
    return any(table_compares_apart(inner, seen) for inner in tables)
