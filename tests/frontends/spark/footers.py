"""Damaged footers of Parquet files, read in a process of its own.

``python -m tests.frontends.spark.footers COUNT FOLDER...`` takes each field out of the footers of saved
models of Spark, or repeats it, then changes fields and bytes at random. What must come of it is a graph or a
`ModelError`.
"""

from __future__ import annotations

import shutil
import struct
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np

from hbtvm.errors import ModelError
from hbtvm.frontends import load_model

NUMBERS = (0, 1, 2, 3, 6, 7, 11, 100, -1, 2**31 - 1, -(2**31), 2**40, 2**63 - 1, -(2**63))
BYTES = (0, 1, 0x15, 0x18, 0x19, 0x1C, 0x7F, 0x80, 0xFF)
BOOLEANS, BINARY, LIST, STRUCT = (1, 2), 8, 9, 12


def main(count: int, folders: list[Path]) -> None:
    seen: Counter[str] = Counter()
    for folder in folders:
        with tempfile.TemporaryDirectory() as place:
            copy = Path(place, "model")
            shutil.copytree(folder, copy)
            for path in sorted(copy.rglob("*.parquet")):
                content = path.read_bytes()
                for i, damaged in enumerate(mutants(content, count)):
                    # What a signal leaves is the last line.
                    print(f"{path.parent.name}, mutant {i}", file=sys.stderr, flush=True)
                    path.write_bytes(damaged)
                    try:
                        load_model(copy)
                        seen["read"] += 1
                    except ModelError as error:
                        assert str(error).count("\n") == 0
                        seen["ModelError"] += 1
                path.write_bytes(content)
    print(dict(seen))


def mutants(content: bytes, count: int) -> Iterator[bytes]:
    """Yield files with other footers: each field absent or twice, and changes at random."""
    (length,) = struct.unpack("<I", content[-8:-4])
    pages, footer = content[: -8 - length], content[-8 - length : -8]
    tree, end = decoded(footer, 0, STRUCT)
    assert end == length
    for path in places(tree):
        for times in (0, 2):
            other = deepcopy(tree)
            at, i = places(other)[path][0]
            at[i : i + 1] = at[i : i + 1] * times
            yield pages + closed(encoded(other, STRUCT))
    for seed in range(count):
        rng = np.random.default_rng(seed)
        if rng.integers(4):
            other = deepcopy(tree)
            for _ in range(int(rng.integers(1, 3))):
                change(other, rng)
            yield pages + closed(encoded(other, STRUCT))
        else:
            changed = bytearray(footer)
            for i in rng.integers(length, size=int(rng.integers(1, 4))):
                changed[i] = BYTES[rng.integers(len(BYTES))]
            yield pages + closed(bytes(changed))


def closed(footer: bytes) -> bytes:
    return footer + struct.pack("<I", len(footer)) + b"PAR1"


def change(tree: Any, rng: np.random.Generator) -> None:
    """Change a field of a struct, or a value of a list."""
    # Every field of the format is as likely, whatever the number of columns.
    several = list(places(tree).values())
    (at, i), (other, j) = (
        same[rng.integers(len(same))] for same in (several[k] for k in rng.integers(len(several), size=2))
    )
    number, kind, value = at[i]
    match int(rng.integers(8)):
        case 0 | 1 | 2:
            del at[i]
        case 3:
            at.insert(i, deepcopy(at[rng.integers(len(at))]))
        case 4:
            at[i] = (int(rng.integers(1, 15)), kind, value)
        case 5:
            at[i] = (number, *deepcopy(other[j][1:]))
        case _ if kind in (LIST, STRUCT):
            del value[:]
        case _ if kind == BINARY:
            at[i] = (number, kind, rng.bytes(int(rng.integers(4))))
        case _ if kind in (3, 4, 5, 6):
            bits = {3: 8, 4: 16, 5: 32, 6: 64}[kind]
            new = int(rng.choice(NUMBERS))
            at[i] = (number, kind, (new + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1))
        case _:
            at[i] = (number, BOOLEANS[rng.integers(2)], None)


def places(tree: Any) -> dict[tuple[int, ...], list[tuple[Any, int]]]:
    """Return the places of each field and value of a list, by the numbers that lead there."""
    result: dict[tuple[int, ...], list[tuple[Any, int]]] = {}

    def walk(value: Any, kind: int, path: tuple[int, ...]) -> None:
        for i, (number, inner, part) in enumerate(value if kind in (STRUCT, LIST) else ()):
            result.setdefault((*path, number), []).append((value, i))
            walk(part, inner, (*path, number))

    walk(tree, STRUCT, ())
    return result


def decoded(data: bytes, at: int, kind: int) -> tuple[Any, int]:
    """Return a value of Thrift's compact protocol, and its end.

    A struct is a list of (number, type, value), as is a list, whose numbers are 0.
    """
    if kind == STRUCT:
        fields: list[Any] = []
        number = 0
        while data[at]:
            inner = data[at] & 15
            number += data[at] >> 4
            assert data[at] >> 4
            value, at = (None, at + 1) if inner in BOOLEANS else decoded(data, at + 1, inner)
            fields.append((number, inner, value))
        return fields, at + 1
    if kind == LIST:
        inner, count, at = data[at] & 15, data[at] >> 4, at + 1
        if count == 15:
            count, at = varint(data, at)
        values = []
        for _ in range(count):
            value, at = decoded(data, at, inner)
            values.append((0, inner, value))
        return values, at
    if kind == BINARY:
        count, at = varint(data, at)
        return data[at : at + count], at + count
    if kind == 3:
        return data[at], at + 1
    assert kind in (4, 5, 6), kind
    raw, at = varint(data, at)
    return raw >> 1 ^ -(raw & 1), at


def encoded(value: Any, kind: int) -> bytes:
    """Return a value in Thrift's compact protocol, see `decoded`."""
    if kind == STRUCT:
        return b"".join(
            bytes([inner]) + of_varint(number << 1) + encoded(part, inner) for number, inner, part in value
        ) + bytes(1)
    if kind == LIST:
        inner = value[0][1] if value else STRUCT
        return (
            bytes([0xF0 | inner])
            + of_varint(len(value))
            + b"".join(encoded(part, at) for _, at, part in value)
        )
    if kind == BINARY:
        return of_varint(len(value)) + bytes(value)
    if kind in BOOLEANS:
        return b""
    if kind == 3:
        return bytes([value & 255])
    return of_varint((value << 1 ^ value >> 63) & (1 << 64) - 1)


def varint(data: bytes, at: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        result |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            return result, at


def of_varint(value: int) -> bytes:
    parts = bytearray()
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return bytes([*parts, value])


if __name__ == "__main__":
    main(int(sys.argv[1]), [Path(folder) for folder in sys.argv[2:]])
