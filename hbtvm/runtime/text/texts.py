"""Texts as UTF-8 and offsets, the input of kernels for texts."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

PADDING = 16  # bytes after terms that may be read


def address_of(array: np.ndarray) -> int:
    """Return an array's address. (numpy's ``ctypes`` would create an object first.)"""
    address: int = array.__array_interface__["data"][0]
    return address


class Texts:
    """Concatenated texts.

    `rows`: number of rows: of one text each, or those of `row_starts`.
    `address`: address of the bytes.
    `offsets`: address of the offsets: text i is from offset i to offset i + 1.
    `wide`: whether offsets have 64 bits rather than 32.
    `row_starts`: address of starts of rows, int64: row i has the texts ``row_starts[i]`` to
        ``row_starts[i + 1]``, each a term; None for one text per row. `PADDING` readable bytes follow terms.
    `values`: address of the terms' counts, float64; None for 1.
    `texts`: number of texts.
    `size`: bytes in total.
    """

    def __init__(
        self,
        rows: int,
        address: int,
        offsets: int,
        wide: bool,
        keep: Any,
        row_starts: int | None = None,
        values: int | None = None,
        texts: int | None = None,
    ) -> None:
        self.rows, self.address, self.offsets, self.wide = rows, address, offsets, wide
        self.row_starts, self.values = row_starts, values
        self.texts = rows if texts is None else texts
        self._keep = keep
        self.size = self._offset(self.texts) - self._offset(0)

    def _offset(self, at: int) -> int:
        kind, size = (ctypes.c_int64, 8) if self.wide else (ctypes.c_int32, 4)
        return int(kind.from_address(self.offsets + size * at).value)

    def text(self, row: int) -> str:
        """Return a text."""
        first, end = self._offset(row), self._offset(row + 1)
        data = ctypes.string_at(self.address + first, end - first)
        try:
            return data.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:  # Arrow does not check
            return data.decode("utf-8", "replace")

    def lowered(self, rows: Sequence[int]) -> Texts:
        """Return some of the texts, in lower case."""
        return of_strings([self.text(row).lower() for row in rows])

    def with_lowered(self, rows: Sequence[int]) -> Texts:
        """Return all texts, some of them in lower case."""
        texts = [self.text(row) for row in range(self.rows)]
        for row in rows:
            texts[row] = texts[row].lower()
        return of_strings(texts)


def of_strings(
    texts: Sequence[str | bytes], row_starts: np.ndarray | None = None, values: np.ndarray | None = None
) -> Texts:
    """Return strings as texts; terms (`row_starts`) may be bytes of UTF-8.

    Raises `TypeError` for other values.
    """
    data, lengths = b"", None
    try:
        joined = "".join(texts)  # type: ignore[arg-type]
        if joined.isascii():
            data, lengths = joined.encode(), np.fromiter(map(len, texts), np.int64, len(texts))
    except TypeError:
        if row_starts is None or not all(isinstance(text, str | bytes) for text in texts):
            raise
    if lengths is None:
        parts = [text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass") for text in texts]
        data, lengths = b"".join(parts), np.fromiter(map(len, parts), np.int64, len(parts))
    offsets = np.empty(len(lengths) + 1, np.int64)
    offsets[0] = 0
    np.cumsum(lengths, out=offsets[1:])
    if row_starts is None:
        return Texts(len(lengths), _address(data), address_of(offsets), True, (data, offsets))
    data += bytes(PADDING)
    return Texts(
        len(row_starts) - 1,
        _address(data),
        address_of(offsets),
        True,
        (data, offsets, row_starts, values),
        address_of(row_starts),
        None if values is None else address_of(values),
        len(lengths),
    )


def _address(data: bytes) -> int:
    return ctypes.cast(ctypes.c_char_p(data), ctypes.c_void_p).value or 0
