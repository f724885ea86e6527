"""Annotations of fields for the codec, and its error."""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeVar

import numpy as np

C = TypeVar("C", bound=type)

SKIP: Final = "skip"  # annotates a field that is not written


class CodecError(ValueError):
    """A value can't be read or written; the text names the field."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason, self.path = reason, ""

    def within(self, place: str) -> CodecError:
        """Return the error with one more place in front of the field's path."""
        self.path = place + self.path
        return self

    def __str__(self) -> str:
        path = self.path.removeprefix(".")
        return f"{path}{self.reason}" if path else self.reason.removeprefix(": ")


@dataclass(frozen=True)
class Within:
    """Numbers from `least` to below `below`."""

    least: float
    below: float = math.inf


@dataclass(frozen=True)
class Via:
    """A value that is written as a value of type `hint`.

    `write` converts to it; `read` converts back, and may raise `ValueError`. None keeps the value.
    """

    hint: Any
    write: Callable[[Any], Any] | None = None
    read: Callable[[Any], Any] | None = None


@dataclass(frozen=True)
class Member:
    """The file's folder that holds the bytes."""

    folder: str


Index = Annotated[int, Within(0)]  # a whole number from 0
Count = Annotated[int, Within(1, 1 << 40)]  # a whole number from 1
Finite = Annotated[float, Within(-sys.float_info.max)]  # a number that is neither NaN nor infinite
Seconds = Annotated[float, Within(5e-324)]  # a measured time, above 0
Scalar = Annotated[Any, Via(str | bool | int | float | None)]  # a text, number, bool or None

Numbers = Annotated[
    np.ndarray,
    Via(tuple[float, ...], lambda array: array.tolist(), lambda values: np.array(values, np.float64)),
]
"""A short float64 array, shape (n,), written into the document itself."""

FAMILIES: set[type] = set()
KINDS: dict[str, type] = {}
BOUND: set[type] = set()


def share(base: type, *kinds: type) -> None:
    """List objects of some dataclasses once in a document, wherever a field's hint is their `base`."""
    FAMILIES.add(base)
    KINDS.update((kind.__name__, kind) for kind in kinds)


def bound(cls: C) -> C:
    """Decorate a dataclass whose JSON ends with its hash, so that readers notice changes."""
    BOUND.add(cls)
    return cls


def binding(values: Mapping[str, Any]) -> str:
    """Return the hash of an object's JSON without its field ``binding``."""
    rest = {name: value for name, value in values.items() if name != "binding"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()
