"""Lines of a log with one field changed, as somebody else might write them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from hbtvm.logs import Record

DEEP = "[" * 1000 + "]" * 1000
VALUES = (
    "null", "true", "-1", "0", "1.5", "1e308", "1e-320", "-0.0", "2147483648", str(2**63), "9" * 400,
    "9" * 5000, "1e400", "NaN", "-Infinity", '""', '"many"', '"a\\u0000b"', '"\\ud800"', '"a\\nb\\u001b[2J"',
    json.dumps("x" * 30_000), "[]", "{}", "[null]", "[1e400]", '{"id": 3}', '{"id": "a", "reading": -1}',
    '{"a": 1, "a": 2}', DEEP, '{"a":' * 1000 + "1" + "}" * 1000,
)  # fmt: skip
"""JSON, or what looks like it, to put in a value's place."""

_MARK = "\ue000"


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all values within a value, outermost first."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in items:
        yield (*path, key)
        yield from places(one, (*path, key))


def changed(fields: Any, path: tuple[Any, ...], text: str | None) -> str:
    """The line of a record with the text in place of the value at a path; None takes the entry away."""
    copy = json.loads(json.dumps(fields))
    inside = copy
    for key in path[:-1]:
        inside = inside[key]
    if text is None:
        del inside[path[-1]]
        return json.dumps(copy)
    inside[path[-1]] = _MARK
    return json.dumps(copy, ensure_ascii=False).replace(f'"{_MARK}"', text)


def lines(record: Record) -> Iterator[str]:
    """All lines with one value changed, or taken away, and with fields that the record has not."""
    fields = json.loads(record.to_line())
    for path in places(fields):
        for text in (*VALUES, None):
            yield changed(fields, path, text)
    for name in ("final", "waited", "drift", "drawn", "new"):
        for text in VALUES:
            yield changed({**fields, name: 0}, (name,), text)


WHOLE = (
    b"[" * 100_000, b"{}", b"null", b'{"version":1', b"\x00" * 100, b"\xff\xfe{}", b'{"a":"\xed\xa0\x80"}',
    b"9" * 100_000, b'{"version":1,"version":1}', b'"' + b"x" * 1_000_000,
)  # fmt: skip
"""Lines that are no records at all."""
