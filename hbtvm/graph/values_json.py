"""Single values of steps as JSON that gives them back with their types: texts, numbers, bools, None, NaN.

JSON has texts, integers, finite floats, bools and null of its own; ``{"float": "nan"}`` and the like stand
for the other floats, ``{"missing": "any"}`` for `hbtvm.graph.steps.NA`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from hbtvm.errors import PackageError
from hbtvm.graph.steps import NA, Missing

Check = Callable[[Any], Any]
"""From JSON to a field's value; raises `ValueError` if it can't be one."""

_ANY = {"missing": "any"}
_FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def write(value: Any) -> Any:
    """Return a value of a step's field in plain terms; numpy's scalars become Python's.

    Raises
    ------
    PackageError
        If it has no form.
    """
    if isinstance(value, np.ndarray):
        return [write(one) for one in value.tolist()]
    if isinstance(value, tuple | list):
        return [write(one) for one in value]
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else {"float": str(float(value))}
    if isinstance(value, str):
        return str(value)
    if value is NA:
        return dict(_ANY)
    if value is None or isinstance(value, bool | int):
        return value
    raise PackageError(f"can't pack the value {value!r:.100}: JSON has no {type(value).__name__}.")


def scalar(data: Any) -> Any:
    """Return the text, number, bool or None that `write` was given."""
    if isinstance(data, dict):
        if set(data) != {"float"} or data["float"] not in _FLOATS:
            raise ValueError(f"a value is {data!r:.100}")
        return _FLOATS[data["float"]]
    if data is None or isinstance(data, str | bool | int):
        return data
    if isinstance(data, float) and math.isfinite(data):
        return data
    raise ValueError(f"a value is {data!r:.100}")


def missing(data: Any) -> Missing:
    """Return what a step takes for missing."""
    if data == _ANY:
        return NA
    value: Missing = scalar(data)
    return value


def number(data: Any) -> float:
    """Return a number as a float."""
    value = scalar(data)
    if type(value) not in (int, float):
        raise ValueError(f"a number is {data!r:.100}")
    return float(value)


def boolean(data: Any) -> bool:
    """Return true or false."""
    if type(data) is not bool:
        raise ValueError(f"true or false is {data!r:.100}")
    return data


def text(data: Any) -> str:
    """Return a text."""
    if not isinstance(data, str):
        raise ValueError(f"a text is {data!r:.100}")
    return data


def whole(data: Any) -> int:
    """Return a whole number from 0."""
    if type(data) is not int or data < 0:
        raise ValueError(f"a whole number is {data!r:.100}")
    return data


def items(of: Check) -> Check:
    """Return what reads a list as a tuple."""

    def read(data: Any) -> tuple[Any, ...]:
        if not isinstance(data, list):
            raise ValueError(f"a list is {data!r:.100}")
        return tuple(map(of, data))

    return read


def array(data: Any) -> np.ndarray:
    """Return numbers as float64, shape (n,)."""
    return np.array(items(number)(data), np.float64)


def rising(data: Any) -> np.ndarray:
    """Return numbers that ascend as float64, shape (n,)."""
    values = array(data)
    if not np.all(values[1:] >= values[:-1]):
        raise ValueError(f"ascending numbers are {data!r:.100}")
    return values


def choice(known: Collection[str]) -> Check:
    """Return what reads one of some texts."""

    def read(data: Any) -> str:
        if not isinstance(data, str) or data not in known:
            raise ValueError(f"one of {', '.join(sorted(known))} is {data!r:.100}")
        return data

    return read
