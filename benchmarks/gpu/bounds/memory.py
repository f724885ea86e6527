"""Memory of interpreted kernels, and what accesses cost: lines, conflicts of banks, misses of a cache."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

import numpy as np

WARP = 32
LINE, SECTOR, BANKS = 128, 32, 32
_REGION = 40
SHARED_WINDOW = 0x7E
"""High word of generic addresses of shared memory."""


class Global:
    """Arrays in global memory, each at a multiple of 2**40.

    An array may stand for a longer one that repeats it: an offset past its end wraps around.
    """

    def __init__(self) -> None:
        self._arrays: list[np.ndarray] = []
        self._sizes: list[int] = []

    def add(self, array: np.ndarray) -> int:
        """Put an array there; returns its address."""
        data = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        padded = np.zeros(-(-data.size // 16) * 16, np.uint8)
        padded[: data.size] = data
        self._arrays.append(padded)
        self._sizes.append(data.size)
        return len(self._arrays) << _REGION

    def array(self, address: int, dtype: Any) -> np.ndarray:
        """Return what is at the address that `add` gave, as a flat array."""
        number = (address >> _REGION) - 1
        return self._arrays[number][: self._sizes[number]].view(dtype)

    def _at(self, address: np.ndarray) -> list[tuple[np.ndarray, np.ndarray, Any]]:
        region = address >> np.uint64(_REGION)
        first = int(region[0])
        found: list[tuple[np.ndarray, np.ndarray, Any]] = []
        kinds = [first] if (region == region[0]).all() else [int(one) for one in np.unique(region)]
        for kind in kinds:
            if not 1 <= kind <= len(self._arrays):
                raise ValueError(f"a kernel reads or writes address {int(address[region == kind][0]):#x}")
            chosen: Any = slice(None) if len(kinds) == 1 else region == kind
            offset = (address[chosen] & np.uint64(2**_REGION - 1)).astype(np.int64)
            data = self._arrays[kind - 1]
            if offset.size and int(offset.max()) >= self._sizes[kind - 1]:
                offset %= self._sizes[kind - 1]
            found.append((data, offset, chosen))
        return found

    def load(self, address: np.ndarray, size: int) -> np.ndarray:
        """Return `size` bytes at each address: uint32, shape (words, n); fewer than 4 get zeros."""
        out = np.zeros((max(1, size // 4), len(address)), np.uint32)
        for data, offset, chosen in self._at(address):
            out[:, chosen] = gather(data, offset, size)
        return out

    def store(self, address: np.ndarray, values: np.ndarray, size: int) -> None:
        """Write what `load` would return."""
        for data, offset, chosen in self._at(address):
            scatter(data, offset, values[:, chosen], size)


def gather(data: np.ndarray, offset: np.ndarray, size: int) -> np.ndarray:
    """Return `size` bytes at offsets into bytes, uint32, shape (words, n)."""
    if size < 4:
        kind: Any = {1: np.uint8, 2: np.uint16}[size]
        return np.asarray(data.view(kind)[offset // size], np.uint32)[None]
    at = offset >> 2
    view = data.view(np.uint32)
    return np.stack([view[at + n] for n in range(size // 4)])


def scatter(data: np.ndarray, offset: np.ndarray, values: np.ndarray, size: int) -> None:
    """Write what `gather` would return."""
    if size < 4:
        kind: Any = {1: np.uint8, 2: np.uint16}[size]
        data.view(kind)[offset // size] = values[0].astype(kind)
        return
    view, at = data.view(np.uint32), offset >> 2
    for n in range(size // 4):
        view[at + n] = values[n]


def lines(address: np.ndarray, active: np.ndarray, unit: int = LINE) -> np.ndarray:
    """Return how many lines each warp touches: int64, shape (warps,); addresses and `active` (warps, 32)."""
    never = np.iinfo(np.int64).max
    own = np.where(active, address.astype(np.int64) // unit, never)
    own.sort(axis=1)
    new = np.concatenate([np.ones((len(own), 1), bool), own[:, 1:] != own[:, :-1]], axis=1)
    return np.asarray((new & (own != never)).sum(axis=1))


def conflicts(offset: np.ndarray, active: np.ndarray, size: int) -> np.ndarray:
    """Return how many cycles each warp's access to shared memory takes: int64, shape (warps,).

    A cycle serves one word of each of 32 banks. Of 8 bytes a thread, half a warp is served at a time; of 16,
    a quarter.

    Parameters
    ----------
    offset, active
        Bytes into shared memory, and whether a thread takes part: shape (warps, 32).
    size
        Bytes that each thread accesses.
    """
    parts, each = max(1, size // 4), WARP // max(1, size // 4)
    warps = len(offset)
    groups, live = offset.reshape(warps * parts, each), active.reshape(warps * parts, each)
    first = groups // 4
    touched = np.concatenate([first + n for n in range(parts)], axis=1)
    live = np.concatenate([live] * parts, axis=1)
    never = np.iinfo(np.int64).max
    own = np.where(live, touched, never).astype(np.int64)
    own.sort(axis=1)
    new = np.concatenate([np.ones((len(own), 1), bool), own[:, 1:] != own[:, :-1]], axis=1) & (own != never)
    slot = (np.arange(len(own))[:, None] * BANKS + own % BANKS)[new]
    counts = np.bincount(slot, minlength=len(own) * BANKS).reshape(len(own), BANKS)
    return np.asarray(counts.max(axis=1).reshape(warps, parts).sum(axis=1))


@dataclass
class Cache:
    """A cache that replaces what was not used for longest, by sectors of 32 bytes.

    Attributes
    ----------
    capacity
        Bytes.
    hits, misses
        Sectors read so far.
    """

    capacity: int
    hits: int = 0
    misses: int = 0
    _known: OrderedDict[int, None] = field(default_factory=OrderedDict)

    def read(self, sectors: list[int]) -> bool:
        """Read sectors; returns whether all were there."""
        known, missed = self._known, 0
        most = max(1, self.capacity // SECTOR)
        for sector in sectors:
            if sector in known:
                known.move_to_end(sector)
                continue
            missed += 1
            known[sector] = None
            if len(known) > most:
                known.popitem(last=False)
        self.misses += missed
        self.hits += len(sectors) - missed
        return not missed
