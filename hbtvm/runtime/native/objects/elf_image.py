"""A shared object as the dynamic loader maps it: the file's bytes by memory address."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Sequence

import numpy as np

EXECUTE, WRITE, READ = 1, 2, 4  # flags of segments

Segment = namedtuple("Segment", "kind flags offset address physical size memory alignment")
"""A program header."""

Section = namedtuple("Section", "name kind flags address offset size link info alignment entry")
"""A section header."""


def require(holds: object, text: str) -> None:
    """Raise a `ValueError` with this text unless `holds` is true."""
    if not holds:
        raise ValueError(text)


class Image:
    """A file's bytes by memory address.

    Methods raise a `ValueError` for addresses outside the file.

    `loaded`: the segments that the loader maps, by address.
    """

    def __init__(self, code: bytes, loaded: Sequence[Segment]) -> None:
        self._code, self.loaded = code, loaded

    def check_within(self, part: Segment | Section, size: int) -> None:
        """Check that a part of the file is mapped at the address in its header."""
        require(
            any(
                load.offset - load.address == part.offset - part.address
                and load.address <= part.address
                and part.address + size <= load.address + load.size
                for load in self.loaded
            )
            or (not size and self.in_memory(part.address, 0)),
            "a part of it lies outside of the segments",
        )

    def all_in_memory(self, places: np.ndarray, size: int, flags: int = 0) -> bool:
        """Return whether `size` bytes at each address are in memory with these flags."""
        inside = np.zeros(len(places), bool)
        for segment in self.loaded:
            if flags & segment.flags == flags:
                inside |= (places >= segment.address) & (places <= segment.address + segment.memory - size)
        return bool(inside.all())

    def in_memory(self, address: int, size: int, flags: int = 0) -> bool:
        """Return whether `size` bytes at an address are in memory with these flags."""
        for segment in self.loaded:
            inside = segment.address <= address and address + size <= segment.address + segment.memory
            if inside and flags & segment.flags == flags:
                return True
        return False

    def is_filled(self, section: Section) -> bool:
        """Return whether the file provides the memory at a section's start."""
        return section.size > 0 and any(
            segment.address <= section.address < segment.address + segment.size for segment in self.loaded
        )

    def until_end(self, address: int) -> int:
        """Return the number of file bytes from an address to the end of its segment."""
        return self._place(address)[1]

    def _place(self, address: int) -> tuple[int, int]:
        """Return an address's file offset, and the remaining bytes of its segment."""
        for segment in reversed(self.loaded):  # two segments may meet at an address
            if segment.address <= address <= segment.address + segment.size:
                return segment.offset + address - segment.address, segment.address + segment.size - address
        raise ValueError("a table lies outside of the file")

    def bytes(self, address: int, size: int, alignment: int = 1) -> bytes:
        """Return `size` bytes of the file at an address."""
        require(address % alignment == 0, "a table is not aligned")
        at, left = self._place(address)
        require(size <= left, "a table ends beyond the file")
        return self._code[at : at + size]

    def array(self, address: int, count: int, dtype: np.typing.DTypeLike, alignment: int = 4) -> np.ndarray:
        """Return numbers of the file at an address."""
        item = np.dtype(dtype)
        return np.frombuffer(self.bytes(address, count * item.itemsize, alignment), item)
