"""FlatBuffers: tables of fields by number, strings and vectors, read within bounds.

A table begins with the distance to its vtable, which has the offset of each field in the table; 0 for a field
of default value. Strings, vectors and tables lie behind the field that refers to them, by their distance.
Every read checks the buffer's end. Vectors may be shared, so all reads together have a bound.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np

from hbtvm.errors import ModelError

Number = TypeVar("Number", int, float)

_EXPANSION = 4  # bound of the bytes read, in sizes of the buffer; a file as CatBoost writes it needs 1


def damaged(reason: str) -> ModelError:
    """Return the error for a file of CatBoost's that is damaged; `reason` continues the sentence."""
    return ModelError(f"the CatBoost model is cut short or damaged: {reason}.")


class Buffer:
    """A buffer, and the bytes that may still be read of it."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        self._left = _EXPANSION * len(content) + 4096

    def root(self) -> Table:
        """Return the root table."""
        return Table(self, self.follow(0))

    def numbers(self, at: int, dtype: str, count: int = 1) -> np.ndarray:
        """Return numbers of little-endian type `dtype` at a position.

        Raises `ModelError` if the buffer ends before, or too much was read.
        """
        size = np.dtype(dtype).itemsize * count
        self._left -= size + 1
        if at < 0 or count < 0 or at + size > len(self.content) or self._left < 0:
            raise damaged("a part lies outside of it")
        return np.frombuffer(self.content, dtype, count, at)

    def number(self, at: int, dtype: str) -> int | float:
        """Return a number at a position."""
        value: int | float = self.numbers(at, dtype)[0].item()
        return value

    def follow(self, at: int) -> int:
        """Return the position that the distance at a position refers to."""
        return at + int(self.number(at, "<u4"))

    def vector(self, at: int, dtype: str) -> np.ndarray:
        """Return the vector at a position."""
        return self.numbers(at + 4, dtype, int(self.number(at, "<u4")))

    def text(self, at: int) -> str:
        """Return the string at a position."""
        try:
            return self.vector(at, "u1").tobytes().decode()
        except UnicodeDecodeError:
            raise damaged("a text is not UTF-8") from None


class Table:
    """A table at a position of a buffer; fields are numbered in the order of the schema."""

    def __init__(self, buffer: Buffer, at: int) -> None:
        self._buffer, self._at = buffer, at
        vtable = at - int(buffer.number(at, "<i4"))
        size = int(buffer.number(vtable, "<u2"))
        self._fields = buffer.numbers(vtable + 4, "<u2", max(size - 4, 0) // 2).tolist()

    def _position(self, field: int) -> int | None:
        offset = self._fields[field] if field < len(self._fields) else 0
        return self._at + offset if offset else None

    def _referred(self, field: int) -> int | None:
        at = self._position(field)
        return None if at is None else self._buffer.follow(at)

    def number(self, field: int, dtype: str, default: Number) -> Number:
        """Return a number, or the default if the field is absent."""
        at = self._position(field)
        return default if at is None else type(default)(self._buffer.number(at, dtype))

    def vector(self, field: int, dtype: str) -> np.ndarray:
        """Return a vector of numbers, or structs of one type of numbers; empty if the field is absent."""
        at = self._referred(field)
        return np.zeros(0, dtype) if at is None else self._buffer.vector(at, dtype)

    def text(self, field: int) -> str:
        """Return a string; empty if the field is absent."""
        at = self._referred(field)
        return "" if at is None else self._buffer.text(at)

    def table(self, field: int) -> Table:
        """Return a table. Raises `ModelError` if the field is absent."""
        at = self._referred(field)
        if at is None:
            raise damaged("a table is missing")
        return Table(self._buffer, at)

    def _items(self, field: int) -> list[int]:
        at = self._referred(field)
        if at is None:
            return []
        distances = self._buffer.vector(at, "<u4").tolist()
        return [at + 4 + 4 * i + distance for i, distance in enumerate(distances)]

    def tables(self, field: int) -> list[Table]:
        """Return a vector of tables; empty if the field is absent."""
        return [Table(self._buffer, at) for at in self._items(field)]

    def texts(self, field: int) -> list[str]:
        """Return a vector of strings; empty if the field is absent."""
        return [self._buffer.text(at) for at in self._items(field)]
