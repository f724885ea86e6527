"""Lines of a log with one field changed, as somebody else might write them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from benchmarks.mutants.changes import MARK, TEXTS, with_text
from hbtvm.logs import Record


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
    inside[path[-1]] = MARK
    return with_text(copy, text)


def lines(record: Record) -> Iterator[str]:
    """All lines with one value changed, or taken away, and with fields that the record has not."""
    fields = json.loads(record.to_line())
    for path in places(fields):
        for text in (*TEXTS, None):
            yield changed(fields, path, text)
    for name in ("final", "waited", "drift", "drawn", "calls", "model", "new"):
        for text in TEXTS:
            yield changed({**fields, name: 0}, (name,), text)


WHOLE = (
    b"[" * 100_000, b"{}", b"null", b'{"version":1', b"\x00" * 100, b"\xff\xfe{}", b'{"a":"\xed\xa0\x80"}',
    b"9" * 100_000, b'{"version":1,"version":1}', b'"' + b"x" * 1_000_000,
)  # fmt: skip
"""Lines that are no records at all."""
