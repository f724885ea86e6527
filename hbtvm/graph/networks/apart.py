"""Where float32 rows are not computed as the same numbers in float64: what is rounded, and compared then."""

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
    """Return whether steps compare numbers of float32 rows with other numbers than those of float64 rows.

    A number of Python is rounded to float32 in front of the former, and arithmetic rounds to their type.
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
    """Return whether steps round the numbers of float32 rows to float32, and those of float64 rows not."""
    own = takewhile(lambda step: not isinstance(step, Cast), steps)
    return any(isinstance(step, Arithmetic | Function) and has_node(step) for step in own)


def mixes(node: Node) -> bool:
    """Whether trees read columns that are rounded apart beside those that a stage makes of rows."""
    if not isinstance(node, Trees) or not isinstance(node.x, TableRows):
        return False
    columns = node.x.table.columns
    computed = any(is_computed(column.source) for column in columns)
    return computed and any(map(rounded_apart, columns))


def rounded_apart(column: Column) -> bool:
    """Whether a column of the rows is rounded apart."""
    return isinstance(column.source, Raw) and rounds_apart(column.steps)


def table_compares_apart(table: Table, seen: set[int]) -> bool:
    """Whether a step on a table's columns, or on those that it is made of, compares float32 rows apart."""
    if isinstance(table.columns, AllColumns):
        return False
    tables: list[Table] = []
    for column in table.columns:
        if compares_apart(column.steps):
            return True
        if isinstance(column.source, Made) and id(column.source.operation) not in seen:
            seen.add(id(column.source.operation))
            tables.append(column.source.operation.inputs)
    return any(table_compares_apart(one, seen) for one in tables)
