"""The bytes of a pickle, from a plain or compressed file, read from front to back."""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

from hbtvm.errors import ModelError

_CHUNK = 1 << 18  # bytes of a compressed file, and of its content, held at a time

_COMPRESSED: tuple[tuple[bytes, str, Callable[[], Any]], ...] = (
    (b"\x1f\x8b", "gzip", lambda: zlib.decompressobj(zlib.MAX_WBITS | 16)),
    (b"BZh", "bz2", bz2.BZ2Decompressor),
    (b"\xfd7zXZ", "xz", lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_LZMA_MEMORY)),
    (b"]\x00\x00", "lzma", lambda: lzma.LZMADecompressor(lzma.FORMAT_ALONE, memlimit=_LZMA_MEMORY)),
    (b"\x78\x01", "zlib", zlib.decompressobj),
    (b"\x78\x5e", "zlib", zlib.decompressobj),
    (b"\x78\x9c", "zlib", zlib.decompressobj),
    (b"\x78\xda", "zlib", zlib.decompressobj),
)
"""First bytes of compressed files of joblib and users, and their decompressors."""

_LZMA_MEMORY = 80 << 20
"""Bound of the LZMA decompressor's memory, in bytes (level 9 needs 65 MiB)."""

_REFUSED = (
    (b"\x04\x22\x4d\x18", "compressed with lz4, which hbtvm does not read; save it with compress='zlib'"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd, which hbtvm does not read; save it with compress='zlib'"),
    (
        b"ZF0x",
        "compressed by a joblib older than 0.10; load it with that joblib, and save it with a newer version",
    ),
    (b"PK\x03\x04", "a zip archive (as of skops or PyTorch), not a pickle; save the model with joblib.dump"),
)
"""First bytes of files that are mistaken for pickles, and the errors for them."""

HEAD = 8  # bytes that identify a file's kind


def size_in_words(count: int) -> str:
    """Return a number of bytes in words, such as ``4 GiB``."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.3g} {unit}"
    return f"{count} bytes"


def content_of(file: BinaryIO, most: int) -> Iterator[bytes]:
    """Yield the content of a file in pieces, expanded if it is compressed.

    `file`: at its beginning; it can seek back there.
    `most`: bound of a compressed file's expanded bytes.
    Yields pieces of at most `_CHUNK` bytes of a compressed file; a plain file as a whole. Raises `ModelError`
    if the file's compression is unsupported, it is damaged, or expands beyond `most`.
    """
    head = file.read(HEAD)
    for start, meaning in _REFUSED:
        if head.startswith(start):
            raise ModelError(f"the file is {meaning}.")
    for start, name, make in _COMPRESSED:
        if head.startswith(start):
            return _expanded(file, head, name, make, most)
    # Read at once, so that arrays are views of it.
    file.seek(0)
    return iter((file.read(),))


def _expanded(file: BinaryIO, head: bytes, name: str, make: Callable[[], Any], most: int) -> Iterator[bytes]:
    expander, total, waiting = make(), 0, head
    try:
        while True:
            if expander.eof:
                # Files that were compressed piece by piece continue with another stream.
                waiting = expander.unused_data or file.read(_CHUNK)
                if name in ("zlib", "lzma") or not waiting.strip(b"\0"):
                    return
                expander = make()
            elif not waiting and getattr(expander, "needs_input", True):
                waiting = file.read(_CHUNK)
                if not waiting:
                    raise ModelError(f"expected a pickled model, but the file ends too early ({name}).")
            piece = expander.decompress(waiting, _CHUNK)
            # zlib returns the rest of its input; the others keep it.
            waiting = getattr(expander, "unconsumed_tail", b"")
            total += len(piece)
            if total > most:
                raise ModelError(
                    f"the {name} file expands to more than {size_in_words(most)}; if the model really is "
                    "that large, allow it with max_bytes=... (in the shell: --max-size)."
                )
            if piece:
                yield piece
    except ModelError:  # a ValueError as well
        raise
    except (zlib.error, lzma.LZMAError, OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise ModelError(f"expected a pickled model, but the file is damaged ({name}: {error}).") from error


class Source:
    """Reads pieces as one stream.

    `passed`: bytes of the pieces before the current one.
    """

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._piece = b""
        self._at = 0
        self.passed = 0

    @property
    def seen(self) -> int:
        """Bytes of the file known so far."""
        return self.passed + len(self._piece)

    @property
    def position(self) -> int:
        """Bytes read so far."""
        return self.passed + self._at

    def byte(self) -> int:
        """Return the next byte.

        Raises `EOFError` if there is none.
        """
        try:
            value = self._piece[self._at]
        except IndexError:
            self._next()
            return self.byte()
        self._at += 1
        return value

    def read(self, count: int) -> bytes:
        """Return the next `count` bytes; claims beyond the file's end take no memory.

        Raises `EOFError` if there are fewer.
        """
        end = self._at + count
        if end <= len(self._piece):
            taken = self._piece[self._at : end]
            self._at = end
            return taken
        return bytes(self._gathered(count))

    def view(self, count: int) -> memoryview:
        """Like `read`, without a copy if the bytes are contiguous."""
        end = self._at + count
        if end <= len(self._piece):
            taken = memoryview(self._piece)[self._at : end]
            self._at = end
            return taken
        return memoryview(bytes(self._gathered(count)))

    def line(self) -> bytes:
        """Return the bytes up to the next line end, which is skipped.

        Raises `EOFError` if there is none.
        """
        content = bytearray()
        while True:
            end = self._piece.find(b"\n", self._at)
            if end >= 0:
                content += memoryview(self._piece)[self._at : end]
                self._at = end + 1
                return bytes(content)
            content += memoryview(self._piece)[self._at :]
            self._next()

    def _gathered(self, count: int) -> bytearray:
        content = bytearray()
        while len(content) < count:
            if self._at >= len(self._piece):
                self._next()
            part = self._piece[self._at : self._at + count - len(content)]
            self._at += len(part)
            content += part
        return content

    def _next(self) -> None:
        self.passed += len(self._piece)
        self._piece, self._at = b"", 0
        piece = next(self._pieces, None)
        if piece is None:
            raise EOFError
        self._piece = piece
