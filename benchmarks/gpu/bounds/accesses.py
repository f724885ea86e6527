"""Loads and stores: what they do, and the cycles, lines and sectors that they take."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.gpu.bounds import memory
from benchmarks.gpu.bounds.lanes import RZ, Lanes, Unknown, plain, words
from benchmarks.gpu.bounds.sass import Instruction
from benchmarks.gpu.bounds.warps import Run, writer

WARP = 32
LOADS = frozenset(("LDG", "LDS", "LD", "LDL"))
STORES = frozenset(("STG", "STS", "ST", "STL", "LDGSTS"))
_SIZES = {"128": 16, "64": 8, "32": 4, "U8": 1, "S8": 1, "U16": 2, "S16": 2, "8": 1, "16": 2}


def size_of(one: Instruction) -> int:
    """Return the bytes that an instruction accesses for each lane."""
    return next((_SIZES[kind] for kind in one.modifiers if kind in _SIZES), 4)


def address(lanes: Lanes, operand: str) -> Callable[[Lanes], Any]:
    """Return what reads an address in brackets: int64 for 32 bits, uint64 for 64."""
    inside = re.fullmatch(r"(?:desc\[UR\d+\])?\[(.*)\]", operand)
    if inside is None:
        raise Unknown(f"address {operand}")
    offset, parts, pair = 0, [], ".64" in operand
    for term in re.findall(r"[+-]?[^+-]+", inside[1].replace(" ", "")):
        name = term.lstrip("+")
        if re.fullmatch(r"-?0x[0-9a-f]+", name):
            offset += int(name, 16)
            continue
        match = re.fullmatch(r"(U?R(?:Z|\d+))(?:\.reuse)?(?:\.(X\d+|64|U32))?", name)
        if match is None:
            raise Unknown(f"address {operand}")
        scale = int(match[2][1:]) if (match[2] or "").startswith("X") else 1
        low = words(lanes, match[1])
        # In a 64-bit address a lone uniform register is a pair, unless the other one is said to have 32 bits.
        whole = match[2] == "64" or (pair and match[1].startswith("U") and "RZ" not in match[1])
        high = words(lanes, match[1], True) if whole else None
        parts.append((low, high, scale))

    def value(m: Lanes) -> Any:
        total: Any = np.full(m.count, offset, np.int64)
        for low, high, scale in parts:
            total += np.asarray(low(m), np.int64) * scale
            if high is not None:
                total += np.asarray(high(m), np.int64) << 32
        return total if pair else total & 0xFFFFFFFF

    return value


def decode(lanes: Lanes, one: Instruction) -> Run:
    """Return what executes a load or a store."""
    if one.name == "LDGSTS":
        return _copy(lanes, one)
    size, load = size_of(one), one.name in LOADS
    if one.name in ("LDL", "STL"):
        return _own(lanes, one, load)
    where = address(lanes, one.operands[1 if load else 0])
    bank, number = lanes.bank(plain(one.operands[0 if load else 1]))
    count = max(1, size // 4)
    signed = next((kind for kind in one.modifiers if kind in ("S8", "S16")), None)
    shared = one.name in ("LDS", "STS")
    generic = one.name in ("LD", "ST")

    def run(m: Any, active: np.ndarray) -> None:
        at = where(m)
        if not active.any():
            return
        inside = active & ((at >> 32) == memory.SHARED_WINDOW) if generic else active
        if shared or (generic and inside.any()):
            own = at[inside] & 0xFFFFFFFF
            offset = own + m.shared_start[inside]
            m.shared_access(at & 0xFFFFFFFF, inside, size, load)
            if load:
                _put(bank, number, memory.gather(m.shared, offset, size), inside, signed)
            else:
                memory.scatter(m.shared, offset, _take(bank, number, count, inside), size)
        outside = active & ~inside if generic else active
        if not shared and outside.any():
            m.global_access(at, outside, size, load)
            chosen = at[outside].view(np.uint64)
            if load:
                _put(bank, number, m.memory.load(chosen, size), outside, signed)
            else:
                m.memory.store(chosen, _take(bank, number, count, outside), size)

    return run


def _own(lanes: Lanes, one: Instruction, load: bool) -> Run:
    """LDL and STL: words of each thread's own memory, which lie side by side for a warp."""
    where, count = address(lanes, one.operands[1 if load else 0]), size_of(one) // 4
    bank, number = lanes.bank(plain(one.operands[0 if load else 1]))

    def run(m: Any, active: np.ndarray) -> None:
        at = (where(m)[active] >> 2) % len(m.local)
        m.counts.lsu += count * int(active.reshape(-1, WARP).any(axis=1).sum())
        for n in range(count):
            if load:
                bank[number + n, active] = m.local[at + n, active]
            else:
                m.local[at + n, active] = bank[number if number == RZ else number + n, active]

    return run


def _copy(lanes: Lanes, one: Instruction) -> Run:
    """LDGSTS: a copy from global to shared memory that passes no register, and maybe not L1 either."""
    size, cached = size_of(one), "BYPASS" not in one.modifiers
    to, source = address(lanes, one.operands[0]), address(lanes, one.operands[1])

    def run(m: Any, active: np.ndarray) -> None:
        if not active.any():
            return
        at, given = to(m), source(m)
        m.global_access(given, active, size, True, cached)
        m.shared_access(at, active, size, False)
        found = m.memory.load(given[active].view(np.uint64), size)
        memory.scatter(m.shared, at[active] + m.shared_start[active], found, size)

    return run


def _put(bank: np.ndarray, number: int, values: np.ndarray, active: np.ndarray, signed: str | None) -> None:
    if signed:
        kind: Any = np.int8 if signed == "S8" else np.int16
        values = values.astype(kind).astype(np.int32).view(np.uint32)
    if number == RZ:
        return
    for n, part in enumerate(values):
        bank[number + n, active] = part


def _take(bank: np.ndarray, number: int, count: int, active: np.ndarray) -> np.ndarray:
    rows = [number if number == RZ else number + n for n in range(count)]
    return np.asarray(bank[rows][:, active])


def constant(lanes: Lanes, one: Instruction) -> Run:
    """LDC: words of the constant bank, at an offset that registers may add to."""
    match = re.fullmatch(r"c\[0x0\]\[(.*)\]", one.operands[1])
    if match is None:
        raise Unknown(f"{one.opcode} {one.operands[1]}")
    where, count = address(lanes, f"[{match[1]}]"), max(1, size_of(one) // 4)
    size, write = size_of(one), writer(lanes, one.operands[0], count)
    if "S8" in one.modifiers or "S16" in one.modifiers:
        raise Unknown(one.opcode)

    def run(m: Any, active: np.ndarray) -> None:
        offset = where(m)
        at = offset >> 2
        found: Any = m.words[at]
        if size < 4:
            found = found >> (offset % 4 * 8).astype(np.uint32) & np.uint32(2 ** (8 * size) - 1)
        if count == 2:
            found = found.astype(np.uint64) | m.words[at + 1].astype(np.uint64) << np.uint64(32)
        write(m, found, active)

    return run
