"""The least time that a launch can take, by what its busiest unit has to do."""

from __future__ import annotations

import math
from dataclasses import dataclass

from benchmarks.gpu.bounds import occupancy, pipes
from benchmarks.gpu.bounds.kernels import MULTIPROCESSORS, Launched
from benchmarks.gpu.bounds.machine import Counts, Machine
from benchmarks.gpu.bounds.memory import Cache, Global

CLOCK = 1.755e9
"""Cycles per second of an H100 SXM under load."""

L2_BYTES = 5.5e12
"""Bytes per second that L2 gives to all multiprocessors together, as microbenchmarks of an H100 found."""

DRAM_BYTES = 3.0e12
"""Bytes per second of the device's memory that kernels reach: nine tenths of 3.35e12."""

INTERPRETED_LANES = 1024
"""About how many threads are interpreted of a launch."""


class NoRoom(ValueError):
    """A multiprocessor holds no block of a kernel."""


@dataclass(frozen=True)
class Bound:
    """Least seconds of a launch by each roof, and what it was counted from.

    Attributes
    ----------
    seconds
        By roof: ``issue``, ``alu``, ``fma``, ``fp64``, ``xu``, ``tensor``, ``l1`` (and shared memory),
        ``l2``, ``dram``, ``latency``.
    warps
        Mean warps on a multiprocessor.
    resident
        Blocks that a multiprocessor could hold.
    spilled
        Bytes of a thread that lie in local memory.
    cycles
        By roof, cycles of a multiprocessor per tree and 32 rows.
    counts
        What the interpreted blocks executed.
    """

    seconds: dict[str, float]
    warps: float
    resident: int
    spilled: int
    cycles: dict[str, float]
    counts: Counts

    @property
    def total(self) -> float:
        """The largest of all roofs, in seconds."""
        return max(self.seconds.values())

    @property
    def limit(self) -> str:
        """The roof that is the largest."""
        return max(self.seconds, key=lambda name: self.seconds[name])


def bound(kernel: Launched, trees: int, rows: int, check: object = None) -> Bound:
    """Interpret some blocks of a launch, and return its bound.

    Blocks are taken to run in step where they share what L1 holds, so that misses are the fewest possible.

    Parameters
    ----------
    trees
        Trees of the model, for figures per tree.
    check
        Called with the scores of the interpreted rows, in the order of rows, if not None.

    Raises
    ------
    NoRoom
        If a multiprocessor holds no block.
    """
    blocks = math.prod(kernel.grid)
    resident = occupancy.resident_blocks(kernel.use)
    if not resident:
        raise NoRoom("a multiprocessor holds no block of the kernel")
    counts, chosen = interpret(kernel, check)
    busiest = -(-blocks // MULTIPROCESSORS)
    own = cycles_of(counts)
    scale = kernel.share / chosen
    seconds = {name: busiest * cycles * scale / CLOCK for name, cycles in own.items()}
    missed = counts_bytes(counts) * scale
    seconds["l2"] = missed * blocks / L2_BYTES
    seconds["dram"] = kernel.moved / DRAM_BYTES
    seconds["latency"] = -(-busiest // resident) * counts.latency * kernel.share / CLOCK
    pairs = trees * rows / 32
    cycles = {name: CLOCK * MULTIPROCESSORS * time / pairs for name, time in seconds.items()}
    warps = occupancy.warps_per_multiprocessor(kernel.use, blocks, MULTIPROCESSORS)
    return Bound(seconds, warps, resident, kernel.spilled, cycles, counts)


def interpret(kernel: Launched, check: object = None) -> tuple[Counts, int]:
    """Interpret some blocks; returns their counts, and how many there were."""
    along, groups = kernel.grid
    lanes = kernel.use.warps * 32
    # All blocks of each tile, whose scores are checked.
    number = groups * max(1, min(along, INTERPRETED_LANES // lanes // groups))
    chosen = [(n // groups, n % groups) for n in range(number)]
    resident = max(1, min(occupancy.resident_blocks(kernel.use), -(-along * groups // MULTIPROCESSORS)))
    cache = Cache(occupancy.l1_bytes(kernel.use, resident) * min(number, resident) // resident)
    memory = Global()
    arguments, read = kernel.begin(memory, chosen)
    machine = Machine(
        kernel.code, chosen, kernel.threads, kernel.grid, kernel.use.shared, arguments, memory, cache
    )
    counts = machine.run()
    counts.missed = cache.misses
    if callable(check):
        check(read())
    return counts, number


def cycles_of(counts: Counts) -> dict[str, float]:
    """Return the cycles of a multiprocessor by pipe for counted instructions."""
    instructions = counts.instructions
    issued = sum(instructions.values())
    memory_instructions = instructions["lsu"]
    return {
        "issue": issued * pipes.CYCLES["issue"],
        "alu": instructions["alu"] * pipes.CYCLES["alu"],
        "fma": instructions["fma"] * pipes.CYCLES["fma"] + instructions["imad"] * pipes.CYCLES["imad"],
        "fp64": instructions["fp64"] * pipes.CYCLES["fp64"],
        "xu": instructions["xu"] * pipes.CYCLES["xu"],
        "tensor": instructions["tensor"] * pipes.CYCLES["tensor"],
        "l1": max(float(counts.lsu), memory_instructions * pipes.CYCLES["lsu"]),
    }


def counts_bytes(counts: Counts) -> float:
    """Return the bytes that pass between L1 and L2."""
    return 32.0 * (counts.missed + counts.stored)
