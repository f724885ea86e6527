"""Plain values of estimators' attributes: missing values, categories, types, functions by name."""

from __future__ import annotations

from typing import Any

import numpy as np

from hbtvm.errors import ModelError
from hbtvm.frontends.pickles import Global, Record
from hbtvm.frontends.pickles.records import kind_of
from hbtvm.frontends.transformers.where import Where
from hbtvm.graph.columns.steps import NA, UFUNCS, Missing
from hbtvm.words.printable import shown


def is_na(value: Any) -> bool:
    """Return whether a value of a pickle is ``pandas.NA``, which pickles hold by name."""
    return isinstance(value, Global) and value.library == "pandas" and value.name in ("NA", "NAType")


def scalar(value: Any, title: str) -> Any:
    """Return a string, bool, number or None in Python's type.

    Raises `ModelError` if it is anything else.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    raise ModelError(f"expected a number or a string as {title}, got {kind_of(value)}.")


def missing_of(record: Record, where: Where) -> Missing:
    """Return the ``missing_values`` of an imputer."""
    value = record.get("missing_values", np.nan)
    if is_na(value):
        return NA
    missing: Missing = scalar(value, f"the missing_values of {where.step}")
    return missing


def dtype_of(value: Any, where: Where) -> np.dtype[Any]:
    """Return a type of numbers from a class of numpy or Python, a name, or a type."""
    if isinstance(value, np.dtype):
        return value
    name = value.name if isinstance(value, Global) and value.library in ("numpy", "builtins") else value
    if name in ("float64", "float32", "int64", "int32", "int16", "int8", "uint8", "bool", "float", "int"):
        return np.dtype(str(name))
    if name == "bool_":
        return np.dtype(bool)
    raise where.unsupported("has a dtype other than a type of numpy's numbers, which is not supported.")


def ufunc_of(value: Any) -> str | None:
    """Return the name in `UFUNCS` of numpy's function; None for other functions."""
    if isinstance(value, Record) and value.is_a("numpy", "_ufunc_reconstruct") and len(value.args) == 2:
        # As numpy pickled its functions before release 2.
        value = Global(str(value.args[0]), str(value.args[1]))
    if not isinstance(value, Global) or value.library != "numpy":
        return None
    return value.name if value.name in UFUNCS else None


def function_name(value: Any) -> str:
    """Return a function's name for errors."""
    if isinstance(value, Global):
        return f"{shown(value.module, 60)}.{shown(value.name, 60)}"
    return kind_of(value)
