"""``FunctionTransformer``: numpy's functions by name, and live functions that can be traced.

Functions that a file names are refused, never called.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from hbtvm.frontends.pickles import Global, Record
from hbtvm.frontends.pickles.live import LiveFunction
from hbtvm.frontends.transformers.dispatch import names_in
from hbtvm.frontends.transformers.traced import traced
from hbtvm.frontends.transformers.typed import accepting, refuse_integers, unified
from hbtvm.frontends.transformers.values import function_name, ufunc_of
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.steps import UFUNCS, Function
from hbtvm.graph.columns.table import AllColumns, Table

_PLAIN = (bool, int, float, str, np.ndarray, np.generic)
"""Types of arguments by name that a pickle holds as they are."""

_HARMLESS = {
    "order": ("K", "C", "F", "A"),
    "subok": (True, False),
    "casting": ("same_kind",),
    "where": (True,),
}
"""Arguments by name that change no value."""


def function_transformer(record: Record, table: Table, where: Where) -> Table:
    """``FunctionTransformer`` of None (the identity) or one of `UFUNCS`."""
    function, arguments = record.get("func", None), record.get("kw_args", None)
    if isinstance(function, LiveFunction) and function.library != "sklearn":
        steps = _traced(function, arguments or {}, record, table, where)
        if steps is not None:
            return steps
    name = known_function(function, arguments, where)
    if record.get("validate", False):
        table = accepting(unified(table) if name else table, nan=False)
    same_names = record.get("feature_names_out", None) == "one-to-one"
    names = names_in(record, table) if same_names else None
    if name is None:
        return replace(table, names=names)
    step = Function(name)
    refuse_integers(table, step.apply, where, together=bool(record.get("validate", False)))
    columns = tuple(column.then(step) for column in unified(table).columns)
    return Table(columns, table.sparse, names)


def _traced(
    function: LiveFunction, arguments: Any, record: Record, table: Table, where: Where
) -> Table | None:
    """Return the columns of a live function; None if it can't be traced."""
    if isinstance(table.columns, AllColumns) or not isinstance(arguments, dict):
        return None
    if not all(value is None or isinstance(value, _PLAIN) for value in arguments.values()):
        return None
    inputs = unified(table)
    if record.get("validate", False):
        inputs = accepting(inputs, nan=False)
    result = traced(function.function, arguments, inputs, where)
    if result is None or record.get("feature_names_out", None) != "one-to-one" or len(result) != len(table):
        return result
    return replace(result, names=names_in(record, table))


def known_function(function: Any, arguments: Any, where: Where) -> str | None:
    """Return the name in `UFUNCS` of a function; None for the identity.

    `function`, `arguments`: as the estimator has them.
    Raises `UnsupportedModel` if it is any other function, or arguments by name may change what it does.
    """
    if function is None:
        return None
    if isinstance(function, Global) and function.library == "sklearn" and function.name == "_identity":
        return None
    name = ufunc_of(function)
    if name is None:
        raise where.unsupported(
            f"has the function {function_name(function)}, which is not supported; supported are None and, of "
            f"numpy, {', '.join(UFUNCS)}."
        )
    for key, value in (arguments or {}).items():
        if key not in _HARMLESS or not any(
            value is harmless or value == harmless for harmless in _HARMLESS[key]
        ):
            raise where.unsupported(
                f"gives numpy.{name} the argument {str(key)[:40]!r}, which is not supported."
            )
    return name
