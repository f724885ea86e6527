"""One codec between dataclasses and JSON, derived from the classes' fields and their type hints.

=======================  ===================================================================
hint                     JSON
=======================  ===================================================================
bool, int, str, None     themselves; integers below 2^1000
float                    a number; ``{"float": "nan"}`` and the like for NaN and infinities
``Literal``              one of its values
``tuple``                a list
``Mapping`` from str     an object; with other keys a list of pairs
a dataclass              an object of its fields, without fields that equal their defaults
several dataclasses      the same, with the class's name as ``kind``
bytes, ``np.ndarray``    the name of a member of the file, see `Store`
``Any``                  any JSON value, nested up to `MOST_DEPTH` levels
=======================  ===================================================================

``Annotated`` hints take `Within`, `Via`, `Member` and `SKIP`. The document's ``shared`` lists each object of
the classes that `share` names once; fields refer to it by number, and objects refer to earlier ones.

Reading converts nothing (``true`` is not a number). It refuses fields that are unknown or missing, and values
that a class's ``__post_init__`` or ``validate`` refuses. Errors name the field.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from typing import Any, NoReturn, TypeVar

from hbtvm.codec.hints import (
    KINDS,
    SKIP,
    CodecError,
    Count,
    Finite,
    Index,
    Member,
    Numbers,
    Scalar,
    Seconds,
    Via,
    Within,
    binding,
    bound,
    share,
)  # fmt: skip
from hbtvm.codec.records import form, kinds
from hbtvm.codec.values import MOST_DEPTH, Sink, Source, Store, listed

__all__ = [
    "MOST_DEPTH", "SKIP", "CodecError", "Count", "Finite", "Index", "Member", "Numbers", "Scalar", "Seconds",
    "Store", "Via", "Within", "binding", "bound", "parse", "read", "share", "text", "write",
]  # fmt: skip

T = TypeVar("T")


def write(value: Any, store: Store | None = None) -> dict[str, Any]:
    """Return a dataclass object as JSON values.

    `store`: keeps bytes and arrays.
    Raises `CodecError` if a value has no form.
    """
    sink = Sink(store)
    document: dict[str, Any] = form(type(value)).write(value, sink)
    if sink.shared and "shared" in document:
        raise CodecError("has shared objects and a field called shared")
    return {**document, "shared": sink.shared} if sink.shared else document


def read(cls: type[T], document: Any, members: Mapping[str, Any] | None = None) -> T:
    """Return the object that a document of `write` describes.

    `members`: bytes and arrays by the names that the `Store` returned.
    Raises `CodecError` if a value is of another type, out of bounds, unknown or missing.
    """
    source = Source(members or {})
    # A class with a field of that name holds no shared objects.
    own = any(field.name == "shared" for field in fields(cls))  # type: ignore[arg-type]
    if type(document) is dict and "shared" in document and not own:
        pool, document = kinds(KINDS), dict(document)
        try:
            for entry in listed(document.pop("shared")):
                source.shared.append(pool.read(entry, source))
        except CodecError as error:
            raise error.within(f"shared[{len(source.shared)}]") from None
    value: T = form(cls).read(document, source)
    return value


def parse(data: bytes | str) -> Any:
    """Return the values of a JSON text.

    Raises `CodecError` if it is not JSON, or nested too deeply.
    """
    try:
        return json.loads(data, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise CodecError("is not JSON") from None


def text(document: Any) -> bytes:
    """Return a document as JSON; equal values give equal bytes."""
    return json.dumps(document, sort_keys=True, indent=1, allow_nan=False).encode()


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)
