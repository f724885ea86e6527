"""How much of a multiprocessor's memory a CUDA kernel has as shared memory: the knob ``carveout``.

Shared memory and L1 are one memory, which the driver divides before a kernel starts. What shared memory takes
beyond what blocks need, L1 lacks for the trees' tables; what it lacks keeps blocks away that had room else.
"""

from __future__ import annotations

from hbtvm.schedules.space import Config, Knob
from hbtvm.schedules.workload import Target

RESERVED = 1024
"""Bytes of shared memory that the system takes of each block (CUDA C++ Programming Guide, on devices of
compute capability 8.0 and later)."""

SIZES = tuple(kib * 1024 for kib in (0, 8, 16, 32, 64, 100, 132, 164, 196, 228))
"""Bytes that shared memory may have, of compute capability 9.0; others have some of them (same place)."""

ATTRIBUTE = "hbtvm.carveout"
"""Attribute of a kernel's function: bytes of shared memory that a multiprocessor is to have for it."""

KNOB = Knob("carveout", ("driver", "needed", "most"), before="driver")
"""What decides: the driver; the blocks that the knob ``resident`` asks for, so that L1 has all else; or that
as many blocks as possible are held at a time."""


def most(target: Target) -> int:
    """Return the bytes of shared memory that a multiprocessor may have."""
    return int(target["max_shared_memory_per_block"]) + RESERVED


def needed(shared: int, resident: int) -> int:
    """Return the least of `SIZES` that holds so many blocks, of so many bytes each."""
    return min((size for size in SIZES if size >= resident * (shared + RESERVED)), default=SIZES[-1])


def is_choice(config: Config, shared: int, target: Target) -> bool:
    """Return whether a configuration, of blocks that take so many bytes, is not another one's twin."""
    if config.get("carveout", "driver") == "driver":
        return True
    if not shared:
        return False  # all is L1's
    return config["carveout"] == "needed" or needed(shared, int(config["resident"])) < most(target)


def wanted(config: Config, shared: int) -> int | None:
    """Return the bytes of shared memory that a configuration wants; None where the driver decides.

    `shared`: bytes of a block.
    """
    how = config.get("carveout", "driver")
    if how == "driver":
        return None
    return needed(shared, int(config["resident"])) if how == "needed" else SIZES[-1]
