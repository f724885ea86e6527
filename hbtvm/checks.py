"""Checks of arguments, for the API and the runtime; each error is one sentence."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from hbtvm.errors import InputError, InputTypeError

MOST_THREADS = 2**16 - 1  # most threads of a call, as packages and archives state them


def whole(name: str, value: Any, least: int, example: int, most: int | None = None) -> int:
    """Check a whole number: an int of Python or numpy.

    `name`: the argument's name, for errors.
    `value`: its value.
    `least`: the least allowed value.
    `example`: a valid value, for errors.
    `most`: the largest allowed value.
    Raises `InputTypeError` if it is not a whole number; bools, floats and texts are not, whatever their
    values. Raises `InputError` if it is too small or too large.
    """
    expected = f"expected a whole number of at least {least}, such as {example}"
    try:
        if isinstance(value, bool):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise InputTypeError(f"{name} is {value!r}, {kind(value)}; {expected}") from None
    if most is not None and number > most:
        raise InputError(f"{name} is larger than {most:,}; expected a whole number up to that")
    if number < least:
        raise InputError(f"{name} is {number}; {expected}")
    return number


def seconds(name: str, value: Any) -> float:
    """Check a positive number of seconds, of Python or numpy.

    Raises `InputTypeError` if it is not a number. Raises `InputError` if it is not above 0, or is NaN.
    """
    number = _number(name, value, "expected a number of seconds above 0, such as 60")
    if not number > 0:
        raise InputError(f"{name} is {number:g}; expected a number of seconds above 0, such as 60")
    return number


def share(name: str, value: Any) -> float:
    """Check a number from 0 to 1; errors as for `seconds`."""
    expected = "expected a number from 0 to 1, such as 0.05"
    number = _number(name, value, expected)
    if not 0 <= number <= 1:
        raise InputError(f"{name} is {number:g}; {expected}")
    return number


def path(name: str, value: Any) -> Path:
    """Check the path of a file. Raises `InputTypeError` if it is not a path."""
    if not isinstance(value, str | os.PathLike):
        raise InputTypeError(f"{name} is {kind(value)}; expected the path of a file")
    return Path(value)


def several(name: str, value: Any, single: type | tuple[type, ...], expected: str) -> tuple[Any, ...]:
    """Check a list, tuple, array or the like; a single value of type `single` means a list of it.

    Raises `InputTypeError` for other values; `expected` describes valid values.
    """
    if isinstance(value, single):
        return (value,)
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise InputTypeError(f"{name} is {value!r}, {kind(value)}; expected {expected}")
    try:
        return tuple(value)
    except TypeError:  # such as an array without axes
        raise InputTypeError(f"{name} is {value!r}; expected {expected}") from None


def flag(name: str, value: Any) -> bool:
    """Check a bool of Python or numpy. Raises `InputTypeError` if it is not a bool."""
    if type(value).__name__ not in ("bool", "bool_"):
        raise InputTypeError(f"{name} is {value!r}, {kind(value)}; expected True or False")
    return bool(value)


def _number(name: str, value: Any, expected: str) -> float:
    refused = isinstance(value, bool | str | bytes)
    try:
        number = math.nan if refused else float(value)
    except (TypeError, ValueError, OverflowError):
        refused, number = True, math.nan
    if refused:
        raise InputTypeError(f"{name} is {value!r}, {kind(value)}; {expected}")
    return number


def kind(value: object) -> str:
    """Return a value's type with its article, for errors: ``a str``, ``an int``."""
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"
