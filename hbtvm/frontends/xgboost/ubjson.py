"""Universal Binary JSON, as XGBoost writes it: sizes and numbers big-endian, arrays mostly typed.

Read here and not by XGBoost, whose own reader can end the process on files of other versions.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

_NUMBERS = {"i": "b", "U": "B", "I": "h", "l": "i", "L": "q", "d": "f", "D": "d"}
"""Type marks to the letters of `struct` and numpy."""

_CONSTANTS = {"T": True, "F": False, "Z": None}


def loads(content: bytes) -> Any:
    """The value of a document, in the types that ``json.loads`` gives.

    Raises `ValueError` if it is not such a document, or cut short.
    """
    reader = _Reader(content)
    try:
        value = reader.value(reader.mark())
    except (struct.error, RecursionError, UnicodeDecodeError) as error:
        raise ValueError(f"{error} at byte {reader.at}") from error
    if reader.at != len(content):
        raise ValueError(f"the document ends at byte {reader.at} of {len(content)}")
    return value


class _Reader:
    """Walks over the bytes; `at` is where it stands."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self.at = 0

    def mark(self) -> str:
        """The type mark that comes next."""
        if self.at >= len(self.content):
            raise ValueError("the document is cut short")
        self.at += 1
        return chr(self.content[self.at - 1])

    def value(self, mark: str) -> Any:
        """Read the value after a type mark."""
        if mark == "{":
            return self._object()
        if mark == "[":
            return self._array()
        if mark == "S":
            return self._text()
        if mark == "C":
            return self._bytes(1).decode("ascii")
        if mark in _CONSTANTS:
            return _CONSTANTS[mark]
        return self._number(mark)

    def _object(self) -> dict[str, Any]:
        result = {}
        while (mark := self.mark()) != "}":
            key = self._bytes(self._count(mark)).decode()
            result[key] = self.value(self.mark())
        return result

    def _array(self) -> list[Any]:
        mark = self.mark()
        if mark == "$":
            kind = self.mark()
            self._expect("#")
            return self._numbers(kind, self._count(self.mark()))
        if mark == "#":
            return [self.value(self.mark()) for _ in range(self._count(self.mark()))]
        result = []
        while mark != "]":
            result.append(self.value(mark))
            mark = self.mark()
        return result

    def _numbers(self, kind: str, count: int) -> list[Any]:
        if kind not in _NUMBERS:
            raise ValueError(f"an array has the type {kind!r} at byte {self.at}")
        dtype = np.dtype(f">{_NUMBERS[kind]}")
        numbers: list[Any] = np.frombuffer(self._bytes(count * dtype.itemsize), dtype).tolist()
        return numbers

    def _text(self) -> str:
        return self._bytes(self._count(self.mark())).decode()

    def _count(self, mark: str) -> int:
        count = self._number(mark)
        if not isinstance(count, int) or count < 0:
            raise ValueError(f"a size is {count!r} at byte {self.at}")
        return count

    def _number(self, mark: str) -> Any:
        if mark not in _NUMBERS:
            raise ValueError(f"the type {mark!r} is not known at byte {self.at}")
        code = ">" + _NUMBERS[mark]
        return struct.unpack(code, self._bytes(struct.calcsize(code)))[0]

    def _bytes(self, count: int) -> bytes:
        if count > len(self.content) - self.at:
            raise ValueError("the document is cut short")
        self.at += count
        return self.content[self.at - count : self.at]

    def _expect(self, mark: str) -> None:
        if self.mark() != mark:
            raise ValueError(f"expected {mark!r} at byte {self.at}")
