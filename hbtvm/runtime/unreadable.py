"""Errors of rows' classes and libraries, in one sentence."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from hbtvm.errors import HbtvmError, InputError
from hbtvm.words.printable import shown


@contextlib.contextmanager
def reading(X: Any) -> Iterator[None]:
    """Turn errors of reading rows into an `InputError`.

    Objects among the rows run code of their classes: an ``__eq__`` or ``__float__`` may raise anything, as
    may a table's library (polars has exceptions of its own).
    """
    try:
        yield
    except (HbtvmError, MemoryError):
        raise
    except BaseException as error:
        # Rust's libraries raise this class, which is not an `Exception`.
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        raise InputError(f"the rows, a {type(X).__name__}, can't be read ({reason(error)}).") from error


def described(value: Any, most: int = 60) -> str:
    """Return a value's ``repr`` on one line, for errors; its class if ``repr`` fails."""
    try:
        return shown(" ".join(repr(value).split()), most=most)
    except Exception:
        return f"a {type(value).__name__}"


def reason(error: BaseException) -> str:
    """Return the class and the first line of an error."""
    try:
        text = next(iter(str(error).splitlines()), "")
    except Exception:
        text = ""
    name = type(error).__name__
    return shown(f"{name}: {text}" if text else name, most=200).rstrip(".")
