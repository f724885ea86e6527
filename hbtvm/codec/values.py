"""Forms of single values, tuples and mappings in JSON."""

from __future__ import annotations

import math
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

from hbtvm.codec.hints import CodecError, Via

Store = Callable[[Any, str], str]
"""Adds bytes or an array to a folder of the file that is written; returns the member's name."""

MOST_DEPTH = 32  # levels of lists and objects in a value of type ``Any``
_MOST = 1 << 1000  # bound of integers; a float holds it

_FLOATS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
NAMES = {str: "a text", bool: "true or false", type(None): "null"}


@dataclass
class Sink:
    store: Store | None
    shared: list[Any] = field(default_factory=list)
    at: dict[int, int] = field(default_factory=dict)


@dataclass
class Source:
    members: Mapping[str, Any]
    shared: list[Any] = field(default_factory=list)


class Form(NamedTuple):
    """Functions that write and read the values of a hint.

    `takes`: the types of JSON values that it reads; for types in `whole`, any value is right.
    """

    write: Callable[[Any, Sink], Any]
    read: Callable[[Any, Any], Any]
    takes: tuple[type, ...]
    whole: frozenset[type] = frozenset()


def wrong(data: Any, expected: str) -> CodecError:
    return CodecError(f" is {data!r:.100}; expected {expected}")


def _plain(value: Any) -> Any:
    """Return a value in Python's built-in type."""
    if isinstance(value, np.generic):
        return value.item()
    return next((cls(value) for cls in (str, bool, int, float) if isinstance(value, cls)), value)


def listed(data: Any) -> list[Any]:
    if type(data) is not list:
        raise wrong(data, "a list")
    return data


def an_object(data: Any) -> dict[str, Any]:
    if type(data) is not dict:
        raise wrong(data, "an object")
    return data


def exact(cls: type) -> Form:
    def read(data: Any, source: Any) -> Any:
        if type(data) is not cls:
            raise wrong(data, NAMES[cls])
        return data

    return Form(lambda value, sink: read(_plain(value), sink), read, (cls,), frozenset({cls}))


def integer(least: float = -_MOST, below: float = _MOST) -> Form:
    def read(data: Any, source: Any) -> int:
        if type(data) is not int or not least <= data < below:
            limits = "" if least == -_MOST else f" from {least:,}"
            raise wrong(data, f"a whole number{limits}" + ("" if below >= _MOST else f" to below {below:,}"))
        return data

    return Form(lambda value, sink: read(_plain(value), sink), read, (int,))


def floating(least: float = -math.inf, below: float = math.inf) -> Form:
    bounded = least > -math.inf or below < math.inf

    def read(data: Any, source: Any) -> float:
        value = data
        if type(data) is dict and data.keys() == {"float"} and type(data["float"]) is str:
            value = _FLOATS.get(data["float"])
        elif type(data) is float:
            value = data if math.isfinite(data) else None
        elif type(data) is not int or not -_MOST < data < _MOST:
            value = None
        if value is None or (bounded and not least <= value < below):
            raise wrong(data, f"a number from {least} to below {below}" if bounded else "a number")
        return float(value)

    def write(value: Any, sink: Sink) -> Any:
        value = _plain(value)
        special = type(value) is float and not math.isfinite(value)
        return {"float": str(read({"float": str(value)}, sink))} if special else read(value, sink)

    return Form(write, read, (float, int, dict))


def choice(values: tuple[Any, ...]) -> Form:
    known = {(type(value), value): value for value in values}

    def read(data: Any, source: Any) -> Any:
        kind = type(data)
        if kind not in kinds or (kind, data) not in known:
            raise wrong(data, f"one of {', '.join(map(repr, values))}")
        return data

    kinds = {type(value) for value in values}
    return Form(lambda value, sink: read(_plain(value), sink), read, tuple(kinds))


def anything() -> Form:
    floats = floating()

    def write(value: Any, sink: Sink) -> Any:
        value = _plain(value)
        if isinstance(value, Mapping):
            return {str(name): write(item, sink) for name, item in value.items()}
        if isinstance(value, list | tuple):
            return [write(item, sink) for item in value]
        if value is None or isinstance(value, str | int):
            return value
        if isinstance(value, float):
            return floats.write(value, sink)
        raise CodecError(f" is {value!r:.100}; JSON has no {type(value).__name__}")

    def read(data: Any, source: Any, depth: int = 0) -> Any:
        if depth > MOST_DEPTH:
            raise CodecError(f" is nested more than {MOST_DEPTH} levels deep")
        if type(data) is dict and data.keys() != {"float"}:
            return {name: read(item, source, depth + 1) for name, item in data.items()}
        if type(data) is list:
            return [read(item, source, depth + 1) for item in data]
        return floats.read(data, source) if isinstance(data, float | dict) else data

    return Form(write, read, (dict, list, str, bool, int, float, types.NoneType))


def each(
    values: Iterable[Any], calls: Iterable[Any], context: Any, names: Sequence[str] | None = None
) -> list[Any]:
    """Read or write values, each by its function; errors name the value's place."""
    result: list[Any] = []
    try:
        for value, call in zip(values, calls):  # noqa: B905 - `calls` may be endless
            result.append(call(value, context))
    except CodecError as error:
        at = len(result)
        raise error.within(f"[{at}]" if names is None else f".{names[at]:.100}") from None
    return result


def items(of: Form) -> Form:
    """Return the form of tuples of any length."""
    whole = of.whole

    def read(data: Any, source: Any) -> tuple[Any, ...]:
        # Long lists of plain values are checked at once.
        if whole and whole.issuperset(map(type, listed(data))):
            return tuple(data)
        return tuple(each(listed(data), repeat(of.read), source))

    return Form(lambda value, sink: each(value, repeat(of.write), sink), read, (list,))


def fixed(forms: tuple[Form, ...]) -> Form:
    def read(data: Any, source: Any) -> tuple[Any, ...]:
        if len(listed(data)) != len(forms):
            raise wrong(data, f"{len(forms)} values")
        return tuple(each(data, [form.read for form in forms], source))

    return Form(lambda value, sink: each(value, [form.write for form in forms], sink), read, (list,))


def named(of: Form) -> Form:
    def write(value: Any, sink: Sink) -> dict[str, Any]:
        names = list(map(str, value))
        return dict(zip(names, each(value.values(), repeat(of.write), sink, names), strict=True))

    def read(data: Any, source: Any) -> dict[str, Any]:
        names = list(an_object(data))
        return dict(zip(names, each(data.values(), repeat(of.read), source, names), strict=True))

    return Form(write, read, (dict,))


def member(cls: type, folder: str) -> Form:
    def write(value: Any, sink: Sink) -> str:
        if sink.store is None:
            raise CodecError(f" is {cls.__name__}, which needs a file to be written to")
        return sink.store(value, folder)

    def read(data: Any, source: Source) -> Any:
        value = source.members.get(data) if type(data) is str else None
        if not isinstance(value, cls) or not data.startswith(f"{folder}/"):
            raise wrong(data, f"the name of a member in {folder}/")
        return value

    return Form(write, read, (str,))


def via(form: Form, note: Via) -> Form:
    """Return the form of values that a note converts; `form` takes the converted value."""
    if note.write is None and note.read is None:
        return form
    write, back = (call or (lambda value: value) for call in (note.write, note.read))

    def read(data: Any, source: Source) -> Any:
        value = form.read(data, source)
        try:
            return back(value)
        except CodecError:
            raise
        except ValueError as error:
            raise CodecError(f": {error}") from None

    return Form(lambda value, sink: form.write(write(value), sink), read, form.takes)


def pairs(key: Form, value: Form) -> Form:
    """Return the form of a mapping whose keys are not strings."""

    def read(items: tuple[tuple[Any, Any], ...]) -> dict[Any, Any]:
        if len(dict(items)) != len(items):
            raise ValueError("a key occurs twice")
        return dict(items)

    return via(items(fixed((key, value))), Via(None, lambda mapping: mapping.items(), read))
