"""Protocol buffers' wire format: the fields of a message by their numbers.

The reader takes time and memory in proportion to the bytes. Nested messages stay bytes until they are asked
for, so that no depth of nesting harms.
"""

from __future__ import annotations

import struct

import numpy as np

from hbtvm.errors import ModelError

_SIZES = {1: 8, 5: 4}  # bytes of numbers of a fixed size, by wire type
_BYTES, _VARINT = 2, 0
_LONGEST = 10  # bytes of a varint


class Message:
    """A message's fields; absent fields have defaults, and of repeated numbers the last counts."""

    def __init__(self, content: bytes) -> None:
        """Split a message. Raises `ModelError` if it is damaged."""
        self._fields: dict[int, list[int | bytes]] = {}
        at, end = 0, len(content)
        while at < end:
            key, at = _varint(content, at)
            kind = key & 7
            value: int | bytes
            if kind == _VARINT:
                value, at = _varint(content, at)
            else:
                if kind == _BYTES:
                    size, at = _varint(content, at)
                elif kind in _SIZES:
                    size = _SIZES[kind]
                else:
                    raise _damaged(f"a field has the wire type {kind}")
                value = content[at : at + size]
                at += size
                if at > end:
                    raise _damaged("a field is longer than its message")
            self._fields.setdefault(key >> 3, []).append(value)

    def __contains__(self, number: int) -> bool:
        return number in self._fields

    def numbered(self, least: int) -> list[int]:
        """Return the numbers of fields from a number on."""
        return [number for number in self._fields if number >= least]

    def whole(self, number: int, default: int = 0) -> int:
        """Return a signed integer, an enumeration or a bool."""
        value = self._fields.get(number, [default])[-1]
        if not isinstance(value, int):
            raise _damaged(f"field {number} is not an integer")
        return value - (1 << 64) if value >> 63 else value

    def content(self, number: int) -> bytes:
        """Return bytes; empty if they are absent."""
        value = self._fields.get(number, [b""])[-1]
        if not isinstance(value, bytes):
            raise _damaged(f"field {number} is not bytes")
        return value

    def text(self, number: int, default: str = "") -> str:
        """Return a string."""
        if number not in self._fields:
            return default
        try:
            return self.content(number).decode()
        except UnicodeDecodeError:
            raise _damaged(f"field {number} is not UTF-8 text") from None

    def message(self, number: int) -> Message:
        """Return a nested message; an empty message if it is absent."""
        return Message(self.content(number))

    def messages(self, number: int) -> list[Message]:
        """Return repeated messages."""
        values = self._fields.get(number, [])
        return [Message(value) for value in values if isinstance(value, bytes)]

    def single(self, number: int) -> float:
        """Return a float32 number."""
        content = self._fields.get(number, [bytes(4)])[-1]
        if not isinstance(content, bytes) or len(content) != 4:
            raise _damaged(f"field {number} is not a float")
        return float(struct.unpack("<f", content)[0])

    def numbers(self, number: int, dtype: str) -> np.ndarray:
        """Return repeated numbers, packed or not: ``"<f4"`` or ``"<f8"``, shape (n,)."""
        values = self._fields.get(number, [])
        content = b"".join(value for value in values if isinstance(value, bytes))
        if len(content) % np.dtype(dtype).itemsize or not all(isinstance(value, bytes) for value in values):
            raise _damaged(f"field {number} is not a list of numbers")
        return np.frombuffer(content, dtype)

    def integers(self, number: int) -> list[int]:
        """Return repeated non-negative integers, packed or not."""
        result = []
        for value in self._fields.get(number, []):
            if isinstance(value, int):
                result.append(value)
                continue
            at = 0
            while at < len(value):
                item, at = _varint(value, at)
                result.append(item)
        return result


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """Return an integer of 64 bits, and the place behind it."""
    value = 0
    for place, byte in enumerate(content[at : at + _LONGEST]):
        value |= (byte & 127) << 7 * place
        if byte < 128:
            return value & (1 << 64) - 1, at + place + 1
    raise _damaged("an integer does not end")


def _damaged(problem: str) -> ModelError:
    return ModelError(f"the YDF model is damaged: {problem}.")
