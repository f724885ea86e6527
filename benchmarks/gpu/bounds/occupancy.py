"""Blocks and warps that a multiprocessor of compute capability 9.0 holds at a time."""

from __future__ import annotations

from dataclasses import dataclass

WARP = 32
MAX_WARPS, MAX_BLOCKS = 64, 32
REGISTERS = 65536
SHARED = 228 * 1024
"""Bytes of shared memory of a multiprocessor."""

RESERVED = 1024
"""Bytes of shared memory that each block takes besides its own."""

UNIFIED = 256 * 1024
"""Bytes of a multiprocessor's L1 cache and shared memory together."""

CARVEOUTS = tuple(kb * 1024 for kb in (0, 8, 16, 32, 64, 100, 132, 164, 196, 228))
"""Sizes that shared memory may take of it."""


@dataclass(frozen=True)
class Use:
    """What a block takes: threads, 32-bit registers of a thread, and bytes of shared memory.

    And `carveout`: bytes of shared memory that a multiprocessor is to have; None for the least that holds as
    many blocks as there is other room for, which is what the driver is taken to choose.
    """

    threads: int
    registers: int
    shared: int
    carveout: int | None = None

    @property
    def warps(self) -> int:
        """Warps of a block."""
        return -(-self.threads // WARP)


def resident_blocks(use: Use) -> int:
    """Return how many blocks a multiprocessor holds, as NVIDIA's occupancy calculator does; 0 for none.

    Registers are allocated to warps, 256 at a time, evenly on four schedulers; shared memory by 128 bytes,
    with `RESERVED` bytes for each block.
    """
    by_warps = MAX_WARPS // use.warps
    registers = -(-use.registers * WARP // 256) * 256
    warps = REGISTERS // registers // 4 * 4 if registers else MAX_WARPS
    shared = -(-(use.shared + RESERVED) // 128) * 128
    # A carve-out is a wish: one that holds no block is not granted.
    room = SHARED if use.carveout is None else max(use.carveout, shared)
    return min(MAX_BLOCKS, by_warps, warps // use.warps, min(room, SHARED) // shared)


def l1_bytes(use: Use, blocks: int) -> int:
    """Return the bytes that are left to L1 by the smallest shared memory that holds so many blocks, or by
    the one that there is to be."""
    taken = blocks * (use.shared + RESERVED) if use.shared else 0
    taken = max(taken, use.carveout or 0)
    return UNIFIED - min((size for size in CARVEOUTS if size >= taken), default=CARVEOUTS[-1])


def warps_per_multiprocessor(use: Use, blocks: int, multiprocessors: int) -> float:
    """Return the mean warps on a multiprocessor while a grid of so many blocks begins."""
    held = min(resident_blocks(use), blocks / multiprocessors)
    return held * use.warps
