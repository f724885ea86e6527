"""Changes of bytes, of plain values and of shared objects, drawn at random."""

from __future__ import annotations

import copy
import json
import random
import struct
from collections.abc import Iterator
from typing import Any

EDGES = (0, 1, 2, 7, 8, 16, 4095, 4096, 2**15, 2**16 - 1, 2**20, 2**31 - 1, 2**31, 2**32 - 1, 2**47,
         2**63 - 1, 2**63, 2**64 - 1)  # fmt: skip

VALUES: tuple[Any, ...] = (
    None, True, False, -1, 0, 1, 2, 3, 64, 2**31 - 1, 2**31, 2**63, 10**30, 10**400, 0.5, -0.0, 1e308,
    float("nan"), float("inf"), "", "x", "1", "float32", "float64", "int64", "\x1b[31m", "\ud800", "x" * 5000,
    [], [1], [[]], {}, {"a": 1}, [None], [0] * 300, ["x"] * 300,
)  # fmt: skip
"""What stands in place of a value of JSON."""

DEEP = "[" * 1000 + "]" * 1000
TEXTS = (
    "null", "true", "-1", "0", "1.5", "1e308", "1e-320", "-0.0", "65536", "2147483647", "2147483648",
    str(2**63), "9" * 400, "9" * 5000, "1e400", "NaN", "-Infinity",
    '""', '"many"', '"\\u0000"', '"a\\u0000b"', '"\\ud800"', '"a\\nb\\u001b[2J"', json.dumps("x" * 30_000),
    "[]", "[null]", "[1e400]", "{}", '{"id": 3}', '{"id": "a"}', '{"id": "a", "reading": -1}',
    '{"a": 1, "a": 2}', DEEP, '{"a":' * 1000 + "1" + "}" * 1000,
)  # fmt: skip
"""Text that stands in place of a value of JSON: JSON, or what looks like it."""

MARK = "\ue000"
"""A string in place of the value that `with_text` replaces."""

_HEADER = ((4, 1), (5, 1), (6, 1), (7, 1), (8, 1), (16, 2), (18, 2), (20, 4), (24, 8), (32, 8), (40, 8),
           (48, 4), (52, 2), (54, 2), (56, 2), (58, 2), (60, 2), (62, 2))  # fmt: skip
_SEGMENT = ((0, 4), (4, 4), (8, 8), (16, 8), (24, 8), (32, 8), (40, 8), (48, 8))
_SECTION = ((0, 4), (4, 4), (8, 8), (16, 8), (24, 8), (32, 8), (40, 4), (44, 4), (48, 8), (56, 8))
_RELRO = 0x6474E552
_FUNCTIONS = (12, 13)
"""Tags INIT and FINI: addresses of code."""


def with_text(fields: Any, text: str) -> str:
    """Return fields as one line of JSON, with a text in place of `MARK`."""
    return json.dumps(fields, ensure_ascii=False).replace(f'"{MARK}"', text)


def changed_bytes(data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    """Bytes flipped, cut, left out, repeated, swapped, or taken from another file."""
    if not data:
        return rng.choice(others)
    at = rng.randrange(len(data))
    size = min(rng.choice((1, 4, 8, 64, 512, 4096)), len(data) - at)
    match rng.randrange(9):
        case 0:
            return b""
        case 1 | 2:
            return data[:at]
        case 3:
            return data[:at] + data[at + size :]
        case 4:
            return data[: at + size] + data[at:]
        case 5:
            to = rng.randrange(len(data))
            first, last = sorted((at, to))
            return data[:first] + data[last : last + size] + data[first + size :]
        case 6:
            other = rng.choice(others)
            start = rng.randrange(max(len(other), 1))
            return data[:at] + other[start : start + size] + data[at + size :]
        case 7:
            return data + rng.randbytes(size)
        case _:
            made = bytearray(data)
            for _ in range(rng.choice((1, 1, 3, 20))):
                made[rng.randrange(len(made))] ^= 1 << rng.randrange(8)
            return bytes(made)


def changed_value(document: Any, rng: random.Random) -> None:
    """Replace, remove, repeat, rename or exchange a value anywhere within dictionaries and lists."""
    places = list(_places(document))
    if not places:
        return
    into, key = rng.choice(places)
    old = into[key]
    match rng.randrange(8):
        case 0:
            del into[key]
        case 1:
            if isinstance(into, list):
                into.insert(key, copy.deepcopy(old))
            else:
                into[f"{key}_"] = into.pop(key)
        case 2:
            other, place = rng.choice(places)
            into[key] = copy.deepcopy(other[place])
        case 3 | 4 if isinstance(old, int | float):
            into[key] = old + rng.choice((-1, 1, 64)) if rng.random() < 0.7 else -old * 2
        case 3 if isinstance(old, list) and old:
            into[key] = rng.choice((old[::-1], old[:-1], old * 2))
        case _:
            into[key] = copy.deepcopy(rng.choice(VALUES))


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    for key in list(value) if isinstance(value, dict) else range(len(value)):
        yield value, key
        if isinstance(value[key], dict | list):
            yield from _places(value[key])


def changed_object(code: bytes, rng: random.Random) -> bytes:
    """A shared object with other numbers in its headers and in the tables that the loader follows.

    Machine code, data, symbols (which function a name leads to), addends, the addresses of functions and
    which memory is protected stay: they are the code.
    """
    fields, wild = _fields(code)
    if not fields:
        return code
    made = bytearray(code)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        extreme = bool(wild) and rng.random() < 0.1
        at, size = rng.choice(wild if extreme else fields)
        old = int.from_bytes(code[at : at + size], "little")
        near = (old + 1, old - 1, old + 8, old - 8, old * 2, old + 4096, old ^ 1 << rng.randrange(8 * size))
        new = rng.choice((*EDGES, len(code), *near, rng.choice((3, 4, 5, 6, 0x6474E550))))
        if extreme:
            new = rng.choice((0x7FFFFFFF, 0xFFFFFFF0, 2**64 - 1))
        made[at : at + size] = (new & (1 << 8 * size) - 1).to_bytes(size, "little")
    return bytes(made)


def _fields(code: bytes) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Places and sizes of numbers to change, and of those that are code unless they are absurd."""
    fields, wild = list(_HEADER), []
    segments, sections, n, n_sections = struct.unpack_from("<32xQQ8xHxxH", code)
    for start in range(segments, segments + 56 * n, 56):
        if struct.unpack_from("<I", code, start)[0] != _RELRO:
            fields += [(start + at, size) for at, size in _SEGMENT]
    for start in range(sections, sections + 64 * n_sections, 64):
        fields += [(start + at, size) for at, size in _SECTION]
        kind, flags, _, at, size = struct.unpack_from("<4xIQQQQ", code, start)
        if not flags & 2:
            continue
        match kind:
            case 6:
                for entry in range(at, at + size, 16):
                    (tag,) = struct.unpack_from("<Q", code, entry)
                    fields += [] if tag in _FUNCTIONS else [(entry, 8), (entry + 8, 8)]
            case 0x6FFFFFF6 | 0x6FFFFFFE:
                fields += [(entry, 4) for entry in range(at, at + size, 4)]
            case 0x6FFFFFFF:
                fields += [(entry, 2) for entry in range(at, at + size, 2)]
            case 4:
                wild += [(entry, 8) for entry in range(at, at + size, 24)]
                wild += [(entry + 12, 4) for entry in range(at, at + size, 24)]
            case 11:
                wild += [(entry, 4) for entry in range(at, at + size, 24)]
    return fields, wild
