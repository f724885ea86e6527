"""Bounds on a record's contents: a shared log is untrusted text.

Code that uses records relies on these bounds: values nested at most 32 deep, integers of 64 bits, finite
floats, printable names, and seconds between a picosecond and some months.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

MOST_BYTES = 1 << 22  # maximal length of a line in bytes
MOST_TEXT = 20_000  # maximal length of a string in characters
MOST_NAME = 200  # maximal length of a name in characters
MOST_SIZE = 2**31 - 1  # largest size in a workload or target; kernels cannot index more

_DEPTH, _TIMES, _WHOLE = 32, 10_000, 2**63
_LEAST_SECONDS, _MOST_SECONDS = 1e-12, 1e7

_WORKLOAD_COUNTS = frozenset({"rows", "threads"})
_WORKLOAD_SIZES = frozenset(
    {
        "batch", "features", "numeric", "categorical", "category_words", "category_size", "groups", "trees",
        "width", "leaves", "depth", "rank_bits", "rank_groups", "numbers", "codes", "entries", "outputs",
        "widest", "levels",
    }
)  # fmt: skip
_WORKLOAD_NAMES = frozenset({"family", "dtype", "value_dtype", "scores"})
_TARGET_SIZES = frozenset(
    {
        "vector_bits", "max_threads_per_block", "thread_warp_size", "max_shared_memory_per_block",
        "registers_per_block", "max_registers_per_thread",
    }
)  # fmt: skip
_TARGET_NAMES = frozenset({"kind", "mcpu", "arch"})


class RecordError(ValueError):
    """A record or a line breaks the schema; the message names the field."""


def parsed(line: str | bytes) -> Any:
    """Parse one line of JSON.

    Raises `RecordError` if the line is longer than `MOST_BYTES`, is not UTF-8 or not JSON by RFC 8259
    (``NaN`` is not), or repeats a key in an object.
    """
    if len(line) > MOST_BYTES:
        raise RecordError(f"a line of more than {MOST_BYTES >> 20} MiB")
    try:
        text = line if isinstance(line, str) else line.decode()
        return json.loads(text, parse_constant=_no_number, object_pairs_hook=_object)
    except RecordError:
        raise
    except UnicodeDecodeError:
        raise RecordError("not UTF-8") from None
    except RecursionError:
        raise RecordError("nested too deep") from None
    except ValueError as error:
        raise RecordError(f"not a line of JSON: {str(error).split(';')[0]}") from None


def plain(name: str, value: object) -> None:
    """Check that a field is JSON within the bounds.

    Raises `RecordError` if it is not.
    """
    left: list[tuple[Any, int]] = [((value,), -1)]
    while left:
        entries, depth = left.pop()
        for entry in entries:
            kind = type(entry)
            if kind is int:
                if not -_WHOLE <= entry < _WHOLE:
                    raise RecordError(f"{name} holds a whole number of more than 64 bits")
            elif kind is str:
                if not _is_text(entry):
                    raise RecordError(
                        f"{name} holds a string that is too long or not Unicode: {brief(entry)}"
                    )
            elif kind is float:
                if entry - entry != 0.0:
                    raise RecordError(f"{name} holds a number that is not JSON: {entry}")
            elif kind is list or kind is tuple:
                left.append((entry, depth + 1))
            elif kind is dict or isinstance(entry, Mapping):
                if not all(map(is_name, entry)):
                    raise RecordError(f"{name} has a key that is not a name: {brief(list(entry))}")
                left.append((entry.values(), depth + 1))
            elif kind is not bool and entry is not None:
                raise RecordError(f"{name} holds something that is not JSON: {brief(entry)}")
        if depth >= _DEPTH:
            raise RecordError(f"{name} is nested too deep")


def check_workload(workload: Mapping[str, Any]) -> None:
    """Check the known entries of a workload.

    Raises `RecordError` if an entry has a wrong type or an impossible size.
    """
    _check_entries("workload", workload, _WORKLOAD_COUNTS, _WORKLOAD_SIZES, _WORKLOAD_NAMES)


def check_target(target: Mapping[str, Any]) -> None:
    """Check the known entries of a target.

    Raises `RecordError` if an entry has a wrong type or an impossible size.
    """
    _check_entries("target", target, frozenset(), _TARGET_SIZES, _TARGET_NAMES)
    for key in ("cores", "num-cores"):
        entry = target.get(key)
        count = type(entry) is int and 1 <= entry <= MOST_SIZE
        if entry is not None and not count and not is_name(entry, 20):
            raise RecordError(f"target[{key!r}] must be a number of cores, not {brief(entry)}")
    for key in ("features", "mattr"):
        entry = target.get(key, ())
        names = [entry] if isinstance(entry, str) else entry
        if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
            raise RecordError(f"target[{key!r}] must be a list of names, not {brief(entry)}")


def _check_entries(
    name: str, value: Mapping[str, Any], counts: frozenset[str], sizes: frozenset[str], names: frozenset[str]
) -> None:
    for key, entry in value.items():
        if key in sizes or key in counts:
            if type(entry) is not int or not (key in counts) <= entry <= MOST_SIZE:
                raise RecordError(f"{name}[{key!r}] must be a size, not {brief(entry)}")
        elif key in names and not is_name(entry):
            raise RecordError(f"{name}[{key!r}] must be a name, not {brief(entry)}")


def check_times(times: object) -> None:
    """Check a record's times.

    Raises `RecordError` if the times are not a list of plausible seconds.
    """
    if not isinstance(times, list | tuple) or len(times) > _TIMES:
        raise RecordError(f"times must be a list, not {brief(times)}")
    if not all(_is_number(time, _LEAST_SECONDS, _MOST_SECONDS) for time in times):
        raise RecordError(f"times must be positive seconds, not {brief(times)}")


def check_seconds(name: str, seconds: object) -> None:
    """Check the duration of a build or a measurement.

    Raises `RecordError` if the duration is not plausible.
    """
    if not _is_number(seconds, 0, _MOST_SECONDS):
        raise RecordError(f"{name} must be seconds, not {brief(seconds)}")


def check_marks(extra: Mapping[str, Any]) -> None:
    """Check the fields that the tuner adds: ``final``, ``waited``, ``drift``, ``drawn``, ``calls``.

    Raises `RecordError` if a field is present and malformed.
    """
    for name in ("waited", "drift"):
        if name in extra and not _is_number(extra[name], 0, _MOST_SECONDS):
            raise RecordError(f"{name} must be a number, not {brief(extra[name])}")
    if not is_name(extra.get("model", "")):
        raise RecordError(f"model must be a name, not {brief(extra['model'])}")
    if not isinstance(extra.get("drawn", False), bool):
        raise RecordError(f"drawn must be true or false, not {brief(extra['drawn'])}")
    calls = extra.get("calls", {})
    if not isinstance(calls, Mapping) or not all(
        is_name(name) and _is_number(seconds, _LEAST_SECONDS, _MOST_SECONDS)
        for name, seconds in calls.items()
    ):
        raise RecordError(f"calls must be seconds by container, not {brief(calls)}")
    final = extra.get("final")
    if final is None or isinstance(final, bool):
        return
    if not isinstance(final, Mapping) or not is_name(final.get("id")):
        raise RecordError(f"final must be true, or have an id, not {brief(final)}")
    if "reading" in final and not _is_number(final["reading"], _LEAST_SECONDS, _MOST_SECONDS):
        raise RecordError(f"final's reading must be seconds, not {brief(final['reading'])}")


def is_name(value: object, most: int = MOST_NAME) -> bool:
    """Return whether a value is a printable string of at most `most` characters on one line."""
    return isinstance(value, str) and len(value) <= most and value.isprintable()


def brief(value: object) -> str:
    """Return a value for an error message, cut to 60 characters."""
    try:
        text = ascii(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits
        text = f"<{type(value).__name__}>"
    return text if len(text) <= 60 else f"{text[:57]}..."


def _is_text(value: str) -> bool:
    if len(value) > MOST_TEXT:
        return False
    return value.isascii() or not any("\ud800" <= character <= "\udfff" for character in value)


def _is_number(value: object, low: float, high: float) -> bool:
    return type(value) in (int, float) and low <= value <= high  # type: ignore[operator]


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        raise RecordError("an object repeats a key")
    return entries


def _no_number(name: str) -> NoReturn:
    raise RecordError(f"{name} is not JSON")
