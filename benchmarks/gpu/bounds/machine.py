"""Machine code of a kernel, executed on a few of its blocks: what it computes, and what it takes.

All lanes whose next instruction is the same execute it together. Lanes that took different ways meet again
where the code says so (BSSY, BSYNC), as on a device; of those that could go on, the ones with the lowest
address do. Warps of a block meet at barriers. Instructions are counted for each warp that takes part.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.gpu.bounds import memory, pipes
from benchmarks.gpu.bounds.lanes import Lanes, predicate
from benchmarks.gpu.bounds.latency import Latency
from benchmarks.gpu.bounds.sass import Code, Instruction
from benchmarks.gpu.bounds.semantics import Unknown, decode

WARP = 32
PARAMETERS = 0x210
"""Where a kernel's arguments begin in constant bank 0 on compute capability 9.0."""

LOCAL = 256
"""Words of a thread's own memory that are kept apart."""

_ENDS = frozenset(("BRA", "EXIT", "BSSY", "BSYNC", "BAR", "CALL", "RET", "BREAK", "BRX"))


@dataclass
class Counts:
    """What the blocks executed.

    Attributes
    ----------
    instructions
        Warp instructions by pipe.
    lsu
        Cycles of loads and stores, global and shared: lines, or conflicting words.
    shared
        The part of `lsu` that is shared memory's.
    sectors
        Sectors of 32 bytes that global loads touched; `stored` those of stores, `missed` those not in L1.
    latency
        Cycles that a block would take alone, in the mean.
    """

    instructions: Counter[str] = field(default_factory=Counter)
    lsu: int = 0
    shared: int = 0
    sectors: int = 0
    stored: int = 0
    missed: int = 0
    latency: float = 0.0


class Machine(Lanes):
    """Some blocks of a launch.

    Parameters
    ----------
    code
        The kernel.
    blocks
        Their indices along x and y.
    threads
        Of a block, along x and y.
    grid
        Blocks of the launch along x and y.
    shared
        Bytes of shared memory of a block.
    arguments
        The kernel's, as the constant bank has them.
    memory
        Global memory.
    cache
        The L1 cache that the blocks share.

    Raises
    ------
    Unknown
        If the code has an instruction that is not known.
    """

    def __init__(
        self,
        code: Code,
        blocks: Sequence[tuple[int, int]],
        threads: tuple[int, int],
        grid: tuple[int, int],
        shared: int,
        arguments: bytes,
        memory: memory.Global,
        cache: memory.Cache,
    ) -> None:
        wide, high = threads
        each = -(-wide * high // WARP) * WARP
        bank = np.zeros(0x1000 + len(arguments) // 4 * 4 + 8, np.uint8)
        sizes = np.array([wide, high, 1, *grid, 1], np.uint32)
        bank[:24] = sizes.view(np.uint8)
        bank[PARAMETERS : PARAMETERS + len(arguments)] = np.frombuffer(arguments, np.uint8)
        super().__init__(len(blocks) * each, bank)
        one = np.arange(each)
        inside = one < wide * high
        repeat = len(blocks)
        self.tid_x = np.tile(one % wide, repeat).astype(np.uint32)
        self.tid_y = np.tile(one // wide, repeat).astype(np.uint32)
        self.block_x, self.block_y = (
            np.repeat(np.array([block[axis] for block in blocks], np.uint32), each) for axis in (0, 1)
        )
        self.lane = np.tile(np.arange(WARP, dtype=np.uint32), self.count // WARP)
        self.zero = np.zeros(self.count, np.uint32)
        self.shared_window = np.full(self.count, memory_window(), np.uint32)
        self.block = np.repeat(np.arange(len(blocks)), each)
        room = -(-(shared + 1024) // 128) * 128
        self.shared = np.zeros(room * len(blocks), np.uint8)
        self.shared_start = self.block * room
        self.memory, self.cache = memory, cache
        self.local = np.zeros((LOCAL, self.count), np.uint32)
        self.full = False
        self.counts = Counts()
        self.latency = Latency(self)
        self._gone = ~np.tile(inside, repeat)
        self._pc = np.zeros(self.count, np.int64)
        self._waits = np.full(self.count, -1)  # the convergence barrier, 16 for a block's own; -1 for none
        self._joined = np.zeros((16, self.count), bool)
        self._runs = _blocks_of(self, code)
        self._missed = np.zeros(self.count // WARP, bool)

    def of_warps(self, active: np.ndarray) -> np.ndarray:
        """Return all lanes of warps that have one among those given."""
        return np.repeat(active.reshape(-1, WARP).any(axis=1), WARP)

    def shared_access(self, offset: np.ndarray, active: np.ndarray, size: int, load: bool) -> None:
        """Count an access to shared memory, of int64 offsets on all lanes."""
        took = memory.conflicts(offset.reshape(-1, WARP), active.reshape(-1, WARP), size)
        self.counts.lsu += int(took.sum())
        self.counts.shared += int(took.sum())

    def global_access(
        self, address: np.ndarray, active: np.ndarray, size: int, load: bool, cached: bool = True
    ) -> None:
        """Count an access to global memory, of int64 addresses on all lanes; L1 may not be `cached` in."""
        by_warp, live = address.reshape(-1, WARP), active.reshape(-1, WARP)
        self.counts.lsu += int(memory.lines(by_warp, live).sum())
        touched = memory.lines(by_warp, live, memory.SECTOR)
        if not load:
            self.counts.stored += int(touched.sum())
            return
        self.counts.sectors += int(touched.sum())
        if not cached:
            self.cache.misses += int(touched.sum())
            self.latency.missed(live.any(axis=1))
            return
        self._missed[:] = False
        sectors = by_warp // memory.SECTOR
        for warp in np.flatnonzero(live.any(axis=1)):
            own = np.unique(sectors[warp][live[warp]]).tolist()
            self._missed[warp] = not self.cache.read(own)
        self.latency.missed(self._missed)

    def run(self) -> Counts:
        """Execute until all lanes have left; returns what that took.

        Raises
        ------
        RuntimeError
            If no lane can go on.
        """
        with np.errstate(all="ignore"):  # as on a device
            self._run()
        self.counts.latency = self.latency.longest()
        return self.counts

    def _run(self) -> None:
        while not self._gone.all():
            ready = ~self._gone & (self._waits < 0)
            if not ready.any():
                raise RuntimeError("no lane can go on")
            pc = int(self._pc[ready].min())
            active = ready & (self._pc == pc)
            self._runs[pc](active)

    def control(self, one: Instruction, active: np.ndarray, after: int) -> None:
        """Execute the last instruction of a run: where lanes go on."""
        taken = active if not one.guard else active & predicate(self, one.guard)(self)
        self._pc[active] = after
        name = one.name
        if name == "BRA" and "DIV" in one.modifiers:
            return  # taken only where a warp's lanes are apart
        if name == "BRA":
            for operand in one.operands[:-1]:
                if re.fullmatch(r"!?U?P[T\d]", operand):
                    taken = taken & predicate(self, operand)(self)
            self._pc[taken] = int(one.operands[-1], 16)
        elif name == "EXIT":
            self._gone |= taken
            self._release(range(17))
        elif name == "BSSY":
            barrier = int(one.operands[0][1:])
            self._joined[barrier][self.of_warps(taken)] = False
            self._joined[barrier] |= taken
        elif name == "BSYNC":
            barrier = int(one.operands[0][1:])
            self._waits[taken & self._joined[barrier]] = barrier
            self._release([barrier])
        elif name == "BREAK":
            barrier = int(one.operands[-1][1:])
            self._joined[barrier] &= ~taken
            self._release([barrier])
        elif name == "BAR":
            self._waits[taken] = 16
            self._release([16])
        elif name == "CALL":
            self._pc[taken] = int(one.operands[-1], 16)
        elif name == "RET":
            bank, number = self.bank(one.operands[0].split()[0])
            self._pc[taken] = bank[number][taken]
        else:
            raise Unknown(one.opcode)

    def _release(self, barriers: Sequence[int] | range) -> None:
        for barrier in barriers:
            waiting = self._waits == barrier
            if not waiting.any():
                continue
            if barrier == 16:
                late = ~self._gone & ~waiting
                blocks = np.bincount(self.block[late], minlength=int(self.block[-1]) + 1) > 0
                free = waiting & ~blocks[self.block]
                self.latency.meet(free)
            else:
                late = self._joined[barrier] & ~self._gone & ~waiting
                free = waiting & ~self.of_warps(late)
                self._joined[barrier] &= ~free
            self._waits[free] = -1


def memory_window() -> int:
    """High word of generic addresses of shared memory."""
    return memory.SHARED_WINDOW


def _blocks_of(machine: Machine, code: Code) -> dict[int, Callable[[np.ndarray], None]]:
    """Return what executes the instructions from each address on that is branched to, up to the next one."""
    starts = {0}
    for one, following in zip(code.instructions, (*code.instructions[1:], None), strict=True):
        if one.name in _ENDS and following is not None:
            starts.add(following.address)
        for operand in one.operands:
            if one.name in ("BRA", "BSSY", "CALL", "WARPSYNC") and operand.startswith("0x"):
                starts.add(int(operand, 16))
    runs: dict[int, Callable[[np.ndarray], None]] = {}
    own: list[Instruction] = []
    for each in code.instructions:
        if own and each.address in starts:
            runs[own[0].address] = _straight(machine, own, each.address)
            own = []
        own.append(each)
    if own:
        runs[own[0].address] = _straight(machine, own, own[-1].address + 16)
    return runs


def _straight(machine: Machine, own: Sequence[Instruction], after: int) -> Callable[[np.ndarray], None]:
    """Return what executes consecutive instructions, of which only the last may branch."""
    last = own[-1] if own[-1].name in _ENDS else None
    body = own[:-1] if last is not None else own
    count: Counter[str] = Counter()
    steps: list[tuple[Callable[[Any, np.ndarray], None], Any, int]] = []

    def prepare() -> None:
        count.update(pipes.histogram(own))
        for one in body:
            guard = predicate(machine, one.guard) if one.guard else None
            steps.append((decode(machine, one), guard, machine.latency.index(one)))

    def run(active: np.ndarray) -> None:
        if not count:
            prepare()
        warps = np.asarray(active.reshape(-1, WARP).any(axis=1))
        number = int(warps.sum())
        for pipe, times in count.items():
            machine.counts.instructions[pipe] += times * number
        everything = bool(active.all())
        latency = machine.latency
        for act, guard, at in steps:
            if guard is None:
                machine.full = everything
                act(machine, active)
            else:
                machine.full = False
                act(machine, active & guard(machine))
            latency.step(at, warps)
        if last is not None:
            latency.step(latency.index(last), warps)
            machine.control(last, active, after)
        else:
            machine._pc[active] = after

    return run
