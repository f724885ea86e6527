"""Results written to registers, and instructions by which lanes of a warp exchange words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.gpu.bounds.integers import LOW
from benchmarks.gpu.bounds.lanes import PT, RZ, URZ, Lanes, Unknown, is_predicate, plain, predicate, words
from benchmarks.gpu.bounds.sass import Instruction

WARP = 32
Run = Callable[[Any, np.ndarray], None]
"""Changes a machine's state on the lanes that take part."""


def writer(lanes: Lanes, operand: str, count: int = 1) -> Callable[[Any, Any, np.ndarray], None]:
    """Return what writes a result: a predicate, a word, or a number of 64 bits to a pair of registers."""
    if is_predicate(operand):
        bank, number = lanes.predicate_bank(operand)
        if number == PT:
            return lambda m, value, active: None
        whole = operand.startswith("U")
    else:
        bank, number = lanes.bank(plain(operand))
        whole = plain(operand).startswith("U")
        if number == (URZ if whole else RZ):
            return lambda m, value, active: None
    rows = [bank[number + n] for n in range(count)]

    def write(m: Any, value: Any, active: np.ndarray) -> None:
        parts = (value,) if count == 1 else (value & LOW, np.asarray(value) >> np.uint64(32))
        for row, part in zip(rows, parts, strict=True):
            if m.full:
                row[...] = part
            else:
                np.copyto(row, part, where=m.of_warps(active) if whole else active, casting="unsafe")

    return write


def predicates_to_word(lanes: Lanes, one: Instruction) -> Run:
    """P2R: predicates as bits, in place of those of a word that a mask has."""
    if one.modifiers or not one.operands[3].startswith("0x"):
        raise Unknown(f"{one.opcode} {', '.join(one.operands)}")
    write, source, mask = (
        writer(lanes, one.operands[0]),
        words(lanes, one.operands[2]),
        int(one.operands[3], 16),
    )

    def run(m: Any, active: np.ndarray) -> None:
        found = np.asarray(source(m), np.uint32) & np.uint32(~mask & 0xFFFFFFFF)
        for n in range(PT):
            if mask >> n & 1:
                found = found | m.P[n].astype(np.uint32) << np.uint32(n)
        write(m, found, active)

    return run


def word_to_predicates(lanes: Lanes, one: Instruction) -> Run:
    """R2P: the predicates that a mask has, from a word's bits."""
    if one.modifiers or ".B" in one.operands[1] or not one.operands[2].startswith("0x"):
        raise Unknown(f"{one.opcode} {', '.join(one.operands)}")
    source, mask = words(lanes, one.operands[1]), int(one.operands[2], 16)

    def run(m: Any, active: np.ndarray) -> None:
        for n in range(PT):
            if mask >> n & 1:
                bit = np.asarray(source(m), np.uint32) >> np.uint32(n) & np.uint32(1)
                np.copyto(m.P[n], bit.astype(bool), where=active)

    return run


def uniform_from(lanes: Lanes, one: Instruction) -> Run:
    """R2UR: a word of a warp's first lane, as a uniform register."""
    source, write = words(lanes, one.operands[1]), writer(lanes, one.operands[0])

    def run(m: Any, active: np.ndarray) -> None:
        value = np.broadcast_to(source(m), (m.count,)).reshape(-1, WARP)
        first = active.reshape(-1, WARP).argmax(axis=1)
        write(m, np.repeat(value[np.arange(len(first)), first], WARP), active)

    return run


def shuffle(lanes: Lanes, one: Instruction) -> Run:
    """SHFL: another lane's word."""
    mode = one.modifiers[0]
    outs, rest = one.operands[0], one.operands[1:]
    write_in, write = writer(lanes, outs), writer(lanes, rest[0])
    source, by, clamp = (words(lanes, operand) for operand in rest[1:4])

    def run(m: Any, active: np.ndarray) -> None:
        lane, n = m.lane.astype(np.int64), np.asarray(by(m), np.int64)
        bound = np.asarray(clamp(m), np.int64)
        segment, most = bound >> 8 & 31, bound & 31
        low = lane & segment
        high = low | (most & ~segment)
        to = {"DOWN": lane + n, "UP": lane - n, "BFLY": lane ^ n, "IDX": low | (n & ~segment)}[mode]
        inside = to >= high if mode == "UP" else to <= high
        to = np.where(inside, to, lane)
        value = np.broadcast_to(source(m), (m.count,))
        base = np.arange(m.count) // WARP * WARP
        write(m, value[base + to], active)
        write_in(m, inside, active)

    return run


def vote(lanes: Lanes, one: Instruction) -> Run:
    """VOTE: whether a predicate holds on any or all lanes, and on which."""
    rest = list(one.operands)
    ballot = None if is_predicate(rest[0]) else writer(lanes, rest.pop(0))
    write, test = writer(lanes, rest[0]), predicate(lanes, rest[1])
    how = one.modifiers[0]

    def run(m: Any, active: np.ndarray) -> None:
        holds = (np.broadcast_to(test(m), (m.count,)) & active).reshape(-1, WARP)
        every = (holds == active.reshape(-1, WARP)).all(axis=1)
        found = every if how == "ALL" else holds.any(axis=1) if how == "ANY" else every | ~holds.any(axis=1)
        if ballot is not None:
            mask = np.packbits(holds, axis=1, bitorder="little").view(np.uint32)[:, 0]
            ballot(m, np.repeat(mask, WARP), active)
        write(m, np.repeat(found, WARP), active)

    return run
