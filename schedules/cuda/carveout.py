"""The knob ``carveout``: a CUDA kernel's part of a multiprocessor's memory as shared memory.

The driver divides one memory between shared memory and L1 before a kernel starts. Too large a part takes L1
from the trees' tables; too small a part keeps resident blocks from fitting.
"""

from __future__ import annotations

from hbtvm.schedules.space import Config, Knob
from hbtvm.schedules.workload import Target

RESERVED = 1024
"""Bytes of shared memory that the system takes for each block (CUDA C++ Programming Guide, on devices of
compute capability 8.0 and later)."""

SIZES = tuple(kib * 1024 for kib in (0, 8, 16, 32, 64, 100, 132, 164, 196, 228))
"""Sizes of shared memory in bytes for compute capability 9.0; others have a subset (same guide)."""

ATTRIBUTE = "hbtvm.carveout"
"""Attribute of a kernel's function: bytes of a multiprocessor's shared memory for it."""

KNOB = Knob("carveout", ("driver", "needed", "most"), before="driver")
"""The driver's choice; enough for ``resident`` blocks, the rest for L1; or the most, for as many blocks as
possible."""


def knob(target: Target) -> Knob:
    """Return the knob on a target: OpenCL leaves the choice to drivers."""
    return KNOB if target["kind"] == "cuda" else Knob(KNOB.name, ("driver",))


def most(target: Target) -> int:
    """Return the bytes of shared memory that a multiprocessor may have."""
    return int(target["max_shared_memory_per_block"]) + RESERVED


def needed(shared: int, resident: int) -> int:
    """Return the smallest of `SIZES` that holds `resident` blocks of `shared` bytes each."""
    return min((size for size in SIZES if size >= resident * (shared + RESERVED)), default=SIZES[-1])


def is_choice(config: Config, shared: int, target: Target) -> bool:
    """Return whether a configuration with blocks of `shared` bytes differs from all other choices."""
    if config.get("carveout", "driver") == "driver":
        return True
    if not shared:
        return False  # L1 has all the memory
    return config["carveout"] == "needed" or needed(shared, int(config["resident"])) < most(target)


def wanted(config: Config, shared: int) -> int | None:
    """Return the bytes of shared memory for a configuration; None if the driver decides.

    `shared`: bytes of a block.
    """
    how = config.get("carveout", "driver")
    if how == "driver":
        return None
    return needed(shared, int(config["resident"])) if how == "needed" else SIZES[-1]
