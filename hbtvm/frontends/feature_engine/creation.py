"""feature-engine's arithmetic of columns: sums, means, differences, ..., behind all columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hbtvm.frontends.feature_engine.columns import Columns
from hbtvm.frontends.pickles import Record
from hbtvm.frontends.transformers.encoders.tables import category
from hbtvm.frontends.transformers.typed import float64
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.steps import ZeroIsMissing
from hbtvm.graph.columns.table import Column, Table
from hbtvm.graph.networks.network import TableRows, computed_columns
from hbtvm.operators.base import Node
from hbtvm.operators.pointwise import apply
from hbtvm.operators.shapes import reduce, select

_FUNCTIONS = ("sum", "mean", "min", "max", "prod")
_OPERATIONS = {"add": "add", "sub": "subtract", "mul": "multiply", "div": "divide", "truediv": "divide"}


def mathematics(record: Record, table: Table, where: Where) -> Table:
    """Read ``MathFeatures``: functions of the numbers of several columns."""
    columns = _checked(record, table, where)
    variables, functions = columns.variables(), record.get("func")
    several = functions if isinstance(functions, list) else [functions]
    rows = _rows([columns[label] for label in variables])
    joined = "_".join(map(str, variables))
    names = record.get("new_variables_names", None) or [f"{function}_{joined}" for function in several]
    for function, name in zip(several, names, strict=True):
        if function not in _FUNCTIONS:
            raise _unknown(function, _FUNCTIONS, where)
        (columns[name],) = computed_columns(_of_numbers(function, rows))
    if record.get("drop_original", False):
        columns.drop(variables)
    return columns.table()


def relations(record: Record, table: Table, where: Where) -> Table:
    """Read ``RelativeFeatures``: each column with each column of reference added, subtracted, ..."""
    columns = _checked(record, table, where)
    variables = [category(label) for label in record.sequence("variables")]
    references = [category(label) for label in record.sequence("reference")]
    fill = record.get("fill_value", None)
    for function in record.sequence("func"):
        if function not in _OPERATIONS:
            raise _unknown(function, tuple(_OPERATIONS), where)
        for reference in references:
            other = columns[reference]
            divides = _OPERATIONS[function] == "divide"
            if divides and fill is None:
                other = replace(float64(Table((other,))).columns[0].then(ZeroIsMissing()), allow_nan=False)
            for label in variables:
                rows = _rows([columns[label], other])
                second = select(rows, [1])
                result: Node = apply(_OPERATIONS[function], select(rows, [0]), second)
                if divides and fill is not None:
                    result = apply("where", apply("equal", second, 0.0), float(fill), result)
                (columns[f"{label}_{function}_{reference}"],) = computed_columns(result)
    if record.get("drop_original", False):
        columns.drop(list(dict.fromkeys([*variables, *references])))
    return columns.table()


def _checked(record: Record, table: Table, where: Where) -> Columns:
    columns = Columns(record, table, where)
    columns.check_numbers(nan=record.get("missing_values") != "raise", inf=True)
    return columns


def _rows(columns: Sequence[Column]) -> TableRows:
    return TableRows(float64(Table(tuple(columns))), allow_nan=True, allow_inf=True)


def _of_numbers(function: str, x: Node) -> Node:
    """Return a function of a row's numbers that are not missing, as pandas computes it."""
    missing = apply("isnan", x)
    if function in ("sum", "mean"):
        total = reduce("sum", apply("where", missing, 0.0, x))
        if function == "sum":
            return total
        return apply("divide", total, apply("subtract", float(x.width), reduce("sum", missing)))
    if function == "prod":
        return reduce("product", apply("where", missing, 1.0, x))
    # A minimum passes NaN on, so that missing numbers become the furthest.
    furthest = float("inf") if function == "min" else float("-inf")
    result = reduce("min" if function == "min" else "max", apply("where", missing, furthest, x))
    return apply("where", reduce("min", missing), float("nan"), result)


def _unknown(function: Any, known: Sequence[str], where: Where) -> Exception:
    name = repr(function)[:40] if isinstance(function, str) else "a function of its own"
    return where.unsupported(f"computes {name}, which is not supported; supported are {', '.join(known)}.")
