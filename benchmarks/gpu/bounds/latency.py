"""How long a warp's instructions wait for one another.

A warp issues an instruction in a cycle, no earlier than its operands are there. Waiting for units that other
warps keep busy is not part of it: the result is what a block takes that is alone on a multiprocessor.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.gpu.bounds import pipes
from benchmarks.gpu.bounds.accesses import LOADS, STORES, size_of
from benchmarks.gpu.bounds.sass import Instruction
from benchmarks.gpu.bounds.semantics import destinations

if TYPE_CHECKING:
    from benchmarks.gpu.bounds.machine import Machine

L1, L2, SHARED = 38.0, 262.0, 29.0
"""Cycles that loads take: from L1, from L2, from shared memory; of an H100, as published microbenchmarks say,
to a few cycles."""

_REGISTERS = re.compile(r"(U?)(R|P)(\d+)(\.64)?")
_NONE = 340
_COPIED = 339
"""In place of a register: what a warp copies asynchronously, for all of which it waits."""


def _index(uniform: str, kind: str, number: int) -> int:
    if kind == "P":
        return 320 + number + (8 if uniform else 0)
    return number + (256 if uniform else 0)


def reads_and_writes(one: Instruction) -> tuple[list[int], list[int]]:
    """Return the registers that an instruction reads and writes, numbered for `Latency`."""
    names, count = destinations(one)
    writes = []
    for name in names:
        match = _REGISTERS.match(name)
        if match:
            extra = 1 if match[2] == "P" else count
            writes += [_index(match[1], match[2], int(match[3]) + n) for n in range(extra)]
    wide = one.name[0] == "D" or (one.name in ("F2F",) and "F64" in one.modifiers)
    reads = []
    stored = size_of(one) // 4 if one.name in STORES else 1
    for operand in (*one.operands[len(names) :], one.guard):
        for uniform, kind, number, pair in _REGISTERS.findall(operand):
            extra = 1 if kind == "P" else 2 if pair or wide else max(1, stored)
            reads += [_index(uniform, kind, int(number) + n) for n in range(extra)]
    last = 336
    return [n for n in reads if n < last], [n for n in writes if n < last]


class Latency:
    """Cycles at which each warp's registers are there.

    Attributes
    ----------
    clock
        The cycle of each warp's last instruction, shape (warps,).
    """

    def __init__(self, machine: Machine) -> None:
        warps = machine.count // 32
        self._machine = machine
        self._ready = np.zeros((_NONE + 1, warps))
        self.clock = np.zeros(warps)
        self._missed: np.ndarray | None = None
        self._known: list[tuple[list[int], list[int], Any, float]] = []
        self._numbers: dict[int, int] = {}

    def index(self, one: Instruction) -> int:
        """Return an instruction's number for `step`."""
        if one.address not in self._numbers:
            pipe = pipes.pipe_of(one)
            reads, writes = reads_and_writes(one)
            cycles = float(pipes.LATENCY.get(pipe, 4))
            is_global = (one.name in LOADS and one.name not in ("LDS", "LDL")) or one.name == "LDGSTS"
            if one.name == "LDGSTS":
                writes = [_COPIED]
            elif one.name == "DEPBAR":
                reads = [*reads, _COPIED]
            self._numbers[one.address] = len(self._known)
            self._known.append((reads or [_NONE], writes, is_global, cycles))
        return self._numbers[one.address]

    def missed(self, warps: np.ndarray) -> None:
        """Say which warps' loads were not in L1, before the `step` of that load."""
        self._missed = warps

    def step(self, number: int, warps: np.ndarray) -> None:
        """Issue an instruction on some warps."""
        reads, writes, is_global, cycles = self._known[number]
        ready, clock = self._ready, self.clock
        start = np.maximum(clock + 1, ready[reads].max(axis=0))
        everything = warps.all()
        if everything:
            clock[:] = start
        else:
            np.copyto(clock, start, where=warps)
        if not writes:
            return
        done = start + cycles
        if is_global:
            missed = self._missed if self._missed is not None else False
            done = start + np.where(missed, L2, L1)
            self._missed = None
        for register in writes:
            if register == _COPIED:
                done = np.maximum(done, ready[register])
            if everything:
                ready[register] = done
            else:
                np.copyto(ready[register], done, where=warps)

    def meet(self, lanes: np.ndarray) -> None:
        """Let the warps of a block wait for the last of them at a barrier."""
        warps = lanes.reshape(-1, 32).any(axis=1)
        blocks = self._machine.block.reshape(-1, 32)[:, 0]
        for block in np.unique(blocks[warps]):
            own = warps & (blocks == block)
            self.clock[own] = self.clock[own].max()

    def longest(self) -> float:
        """Return the cycles of a block, those of its slowest warp; the mean of all blocks."""
        blocks = self._machine.block.reshape(-1, 32)[:, 0]
        return float(np.mean([self.clock[blocks == block].max() for block in np.unique(blocks)]))
