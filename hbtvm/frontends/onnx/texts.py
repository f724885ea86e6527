"""ONNX Runtime's strings of other values, and their codes."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from hbtvm.graph.columns.steps import Encode, Fill, Step
from hbtvm.graph.columns.table import Column

_MISSING = {"nan": math.nan, "None": None}
"""ONNX Runtime takes ``str(value)`` of objects other than strings; converters write such categories."""


@dataclass(frozen=True, eq=False)
class Spelled(Step):
    """Integers as strings, in the form of ``Cast``. `encoding` looks up the integers instead."""


def spelled(value: Any) -> str:
    """Return a number in the form of ``Cast``: floats have 8 digits."""
    if isinstance(value, float):
        if math.isfinite(value):
            return f"{value:.8g}"
        return "NaN" if value != value else "INF" if value > 0 else "-INF"
    return str(int(value) if isinstance(value, bool) else value)


def encoding(
    texts: Sequence[str], unknown: Literal["error", "code"] = "code", where: str = ""
) -> Callable[[Column], Column]:
    """Return the function that makes codes of a column of strings; see `Encode` for the parameters."""
    missing = [Fill(text, value) for text, value in _MISSING.items() if text in texts]
    of_texts = (*missing, Encode(tuple(texts), unknown, where))
    # Strings that are not integers stay, and equal no integer.
    of_integers = (Encode(tuple(_integer(text) for text in texts), unknown, where),)

    def encode(column: Column) -> Column:
        if column.steps and isinstance(column.steps[-1], Spelled):
            return replace(column, steps=(*column.steps[:-1], *of_integers))
        return column.then(*of_texts)

    return encode


def _integer(text: str) -> int | str:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 19:
        return text
    return int(text) if str(int(text)) == text else text
