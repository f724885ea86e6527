"""The members of a skops file: bounded bytes, and numpy's arrays."""

from __future__ import annotations

import io
import zipfile
import zlib
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np

from hbtvm.errors import ModelError
from hbtvm.frontends.pickles import MAX_BYTES, arrays
from hbtvm.frontends.pickles.source import size_in_words

_EXPANSION, _AT_LEAST = 100, 256 << 20
"""Bytes of all members for each byte of the file, and for any file: deflate reaches 1,000."""

_SCHEMA_TIMES, _SCHEMA_AT_LEAST = 9, 16 << 20
"""The same for the tree of objects, each of which takes more memory than its text."""

SCHEMA = "schema.json"
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # others may need any memory to expand

DAMAGE = (
    *(zipfile.BadZipFile, zlib.error, EOFError, KeyError, ValueError, TypeError, IndexError),
    *(AttributeError, OverflowError, RuntimeError, NotImplementedError, SyntaxError, MemoryError, TokenError),
)
"""Python's and numpy's errors for damaged archives and arrays."""


class Archive:
    """The members of a skops file; each is read once.

    `path`: the file.
    `max_bytes`: bound of the expanded bytes; None for a bound by the file's size.
    Raises `ModelError` if it is not a zip archive.
    """

    def __init__(self, path: Path, max_bytes: int | None) -> None:
        size = path.stat().st_size
        self._left = min(MAX_BYTES, _EXPANSION * size + _AT_LEAST) if max_bytes is None else max_bytes
        self._most_schema = max_bytes or _SCHEMA_TIMES * size + _SCHEMA_AT_LEAST
        self._arrays: dict[str, Any] = {}
        self._zip = zipfile.ZipFile(path)

    def close(self) -> None:
        """Close the file."""
        self._zip.close()

    def schema(self) -> bytes:
        """Return the text of the tree of objects."""
        return self.read(SCHEMA, self._most_schema)

    def read(self, name: str, most: int | None = None) -> bytes:
        """Return a member's bytes, at most `most`. Raises `ModelError` if there are more than allowed."""
        member = self._zip.getinfo(name)
        if member.compress_type not in _METHODS:
            raise ModelError(
                "the skops file is compressed by bzip2 or LZMA, which hbtvm does not read; save it with "
                "compression=zipfile.ZIP_DEFLATED."
            )
        allowed = self._left if most is None else min(self._left, most)
        if member.file_size > allowed:
            raise ModelError(
                f"the skops file expands to more than {size_in_words(allowed)}; if the model really is that "
                "large, allow it with max_bytes=... (in the shell: --max-size)."
            )
        self._left -= member.file_size
        return self._zip.read(member)  # at most `file_size` bytes

    def array(self, name: str) -> np.ndarray:
        """Return an array in numpy's format. Raises `ModelError` if it is damaged."""
        if name not in self._arrays:
            self._arrays[name] = _array(self.read(name))
        array: np.ndarray = self._arrays[name]
        return array

    def arrays(self, name: str) -> dict[str, np.ndarray]:
        """Return the arrays of an archive in numpy's format, such as of a sparse matrix."""
        if name not in self._arrays:
            with zipfile.ZipFile(io.BytesIO(self.read(name))) as inner:
                sizes = sum(member.file_size for member in inner.infolist())
                if sizes > self._left or any(m.compress_type not in _METHODS for m in inner.infolist()):
                    raise ValueError(f"{name} expands to {size_in_words(sizes)}")
                self._left -= sizes
                members = {m.filename.removesuffix(".npy"): _array(inner.read(m)) for m in inner.infolist()}
            self._arrays[name] = members
        arrays: dict[str, np.ndarray] = self._arrays[name]
        return arrays


def _array(content: bytes) -> np.ndarray:
    file = io.BytesIO(content)
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(file)
    return arrays.from_bytes(memoryview(content)[file.tell() :], dtype, shape, "F" if fortran else "C")
