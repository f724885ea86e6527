"""The footer of a Parquet file, in Thrift's compact protocol: how many values it claims.

pyarrow ends the process when asked for the metadata of a column that the schema lacks or that is encrypted.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any, TypeVar

_Kind = TypeVar("_Kind")

_MOST_BYTES = 1 << 20  # bound of a footer
_DEEPEST = 32  # nesting depth of structs and lists

_TRUE, _FALSE, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 1, 2, 7, 8, 9, 10, 11, 12
_INTEGERS = {3: 8, 4: 16, 5: 32, 6: 64}  # bits, by type


def claimed(path: Path) -> int:
    """Return the number of values or rows that a file's footer claims, whichever is more.

    Raises `ValueError` if the footer is damaged.
    """
    fields = _Reader(_bytes_of(path)).struct(0)
    groups = _get(fields, 4, list)
    values = [_get(_get(chunk, 3, dict), 5, int) for group in groups for chunk in _get(group, 1, list)]
    rows = [_get(fields, 3, int), *(_get(group, 3, int) for group in groups)]
    if min(rows + values) < 0:
        raise ValueError("a footer claims negative numbers of values")
    return max([sum(values), *rows])


def _bytes_of(path: Path) -> bytes:
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(size - 8, 0))
        length, magic = struct.unpack("<I4s", file.read(8).rjust(8, b"\0"))
        if magic != b"PAR1" or not length <= min(size - 12, _MOST_BYTES):
            raise ValueError("a file has no Parquet footer")
        file.seek(size - 8 - length)
        return file.read(length)


def _get(fields: Any, number: int, kind: type[_Kind]) -> _Kind:
    """Return the field of a struct that must be there."""
    value = fields.get(number) if isinstance(fields, dict) else None
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ValueError("a footer lacks a field")
    return value


class _Reader:
    """Reads structs as dictionaries of fields by number."""

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def struct(self, depth: int) -> dict[int, Any]:
        fields: dict[int, Any] = {}
        number = 0
        while header := self._byte():
            number = number + (header >> 4) if header >> 4 else self._integer(16)
            # Thrift merges the fields of a struct that comes twice.
            if not 0 <= number < 1 << 15 or number in fields:
                raise ValueError("a footer has a wrong field")
            kind = header & 15
            fields[number] = kind == _TRUE if kind in (_TRUE, _FALSE) else self._value(kind, depth + 1)
        return fields

    def _value(self, kind: int, depth: int) -> Any:
        if depth > _DEEPEST:
            raise ValueError("a footer is nested too deep")
        if kind in _INTEGERS:
            return self._byte() if kind == 3 else self._integer(_INTEGERS[kind])
        if kind in (_DOUBLE, _BINARY):
            return self._take(8 if kind == _DOUBLE else self._varint())
        if kind in (_LIST, _SET):
            header = self._byte()
            count = self._varint() if header >> 4 == 15 else header >> 4
            return self._values([header & 15], count, depth)
        if kind == _MAP:
            count = self._varint()
            header = self._byte() if count else 0
            return self._values([header >> 4, header & 15], count, depth)
        if kind == _STRUCT:
            return self.struct(depth)
        if kind in (_TRUE, _FALSE):
            return self._byte() == _TRUE
        raise ValueError("a footer has a field of an unknown type")

    def _values(self, kinds: list[int], count: int, depth: int) -> list[Any]:
        # Every value has a byte.
        if count > len(self._data) - self._at:
            raise ValueError("a footer is cut short")
        return [self._value(kind, depth + 1) for _ in range(count) for kind in kinds]

    def _integer(self, bits: int) -> int:
        raw = self._varint()
        if raw >> bits:
            raise ValueError("a footer has a wrong number")
        return raw >> 1 ^ -(raw & 1)

    def _varint(self) -> int:
        result = 0
        for shift in range(0, 70, 7):
            byte = self._byte()
            result |= (byte & 127) << shift
            if byte < 128:
                return result
        raise ValueError("a footer has a wrong number")

    def _byte(self) -> int:
        return self._take(1)[0]

    def _take(self, count: int) -> bytes:
        start, self._at = self._at, self._at + count
        if self._at > len(self._data):
            raise ValueError("a footer is cut short")
        return self._data[start : self._at]
