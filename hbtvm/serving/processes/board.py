"""Memory that the processes of a service share."""

from __future__ import annotations

import contextlib
import fcntl
import json
import mmap
import os
import struct
import threading
import zlib
from collections.abc import Iterator
from typing import Any

_HEAD = struct.Struct("<II")  # length and CRC-32 of a text
_TRIES = 1000  # a reader that meets so many torn texts gives up


class Board:
    """Cells of JSON in memory that is inherited by a fork.

    Each cell has two halves, and a byte that names the current half: a process that dies while it writes
    leaves the old value. Readers take no lock; they read again if a checksum shows that a half has changed
    meanwhile. A cell with several writers needs `locked`.

    `cells`, `size`: number of cells; maximal bytes of a value.
    `counts`: an integer for each cell, without a lock.
    """

    def __init__(self, cells: int, size: int) -> None:
        self._half = _HEAD.size + size
        self._cell = 1 + 2 * self._half
        self._memory = mmap.mmap(-1, cells * self._cell)
        self.counts = memoryview(mmap.mmap(-1, 8 * cells)).cast("q")
        # The system releases this lock if its owner dies. It does not exclude threads of a process.
        self._file = os.memfd_create("hbtvm-board")
        self._threads = threading.Lock()

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Exclude other writers that use this lock."""
        with self._threads:
            fcntl.lockf(self._file, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.lockf(self._file, fcntl.LOCK_UN)

    def read(self, cell: int) -> Any:
        """Return a cell's value; None if it has none."""
        start = cell * self._cell
        for _ in range(_TRIES):
            at = start + 1 + self._memory[start] * self._half
            length, check = _HEAD.unpack_from(self._memory, at)
            if not length:
                return None
            at += _HEAD.size
            text = self._memory[at : at + length]
            if zlib.crc32(text) == check:
                return json.loads(text)
        return None

    def write(self, cell: int, value: Any) -> None:
        """Replace a cell's value.

        Raises `ValueError` if its JSON is too long.
        """
        text = json.dumps(value, separators=(",", ":")).encode()
        if _HEAD.size + len(text) > self._half:
            raise ValueError(f"a value of {len(text):,} bytes is too long for a cell of the board")
        start = cell * self._cell
        other = 1 - self._memory[start]
        at = start + 1 + other * self._half
        self._memory[at + _HEAD.size : at + _HEAD.size + len(text)] = text
        _HEAD.pack_into(self._memory, at, len(text), zlib.crc32(text))
        self._memory[start] = other
