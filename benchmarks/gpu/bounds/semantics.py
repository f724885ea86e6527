"""Instructions as functions that change the state of many lanes at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.gpu.bounds import accesses, integers, pipes, reals, tensor, warps
from benchmarks.gpu.bounds.integers import Compute, Results
from benchmarks.gpu.bounds.lanes import (
    Lanes,
    Unknown,
    floats,
    is_predicate,
    plain,
    predicate,
    words,
)
from benchmarks.gpu.bounds.sass import Instruction
from benchmarks.gpu.bounds.warps import Run, writer

_COMPUTE: dict[str, Callable[[Lanes, Instruction], Compute]] = {
    **dict.fromkeys(("IADD3", "VIADD", "UIADD3", "IADD"), integers.add),
    **dict.fromkeys(("IMAD", "UIMAD"), integers.multiply_add),
    **dict.fromkeys(("LEA", "ULEA"), integers.scaled_add),
    **dict.fromkeys(("SHF", "USHF"), integers.shift),
    **dict.fromkeys(("LOP3", "ULOP3"), integers.logic),
    **dict.fromkeys(("PRMT", "UPRMT"), integers.permute),
    **dict.fromkeys(("ISETP", "UISETP"), integers.compare),
    **dict.fromkeys(("FADD", "FMUL", "FFMA", "DADD", "DMUL", "DFMA"), reals.arithmetic),
    **dict.fromkeys(("FSETP", "DSETP"), reals.compare),
    **dict.fromkeys(("F2F", "I2F", "F2I"), reals.convert),
    "FSET": reals.comparison,
    "FMNMX": reals.extreme,
    "MUFU": reals.special,
    "FCHK": reals.needs_care,
    "I2FP": reals.convert,
}

_SPECIAL = {
    "SR_TID.X": "tid_x",
    "SR_TID.Y": "tid_y",
    "SR_TID.Z": "zero",
    "SR_CTAID.X": "block_x",
    "SR_CTAID.Y": "block_y",
    "SR_CTAID.Z": "zero",
    "SR_LANEID": "lane",
    "SR_CgaCtaId": "zero",
    "SR_SWINHI": "shared_window",
    "SRZ": "zero",
}


def destinations(one: Instruction) -> tuple[list[str], int]:
    """Return the operands that an instruction writes, predicates included, and the registers of each."""
    name, kinds = one.name, one.modifiers
    if name in accesses.STORES or one.operands == () or name in _CONTROL:
        return [], 1
    found = [one.operands[0]]
    if name in ("ISETP", "FSETP", "DSETP", "UISETP", "PLOP3", "UPLOP3", "SHFL"):
        found = list(one.operands[:2])
    elif name in ("VOTE", "VOTEU"):
        found = list(one.operands[: 1 if is_predicate(found[0]) else 2])
    elif name in ("LOP3", "ULOP3"):
        leading = next(n for n, operand in enumerate(one.operands) if not is_predicate(operand))
        found = list(one.operands[: leading + 1])
    elif name in ("IADD3", "UIADD3", "LEA", "ULEA", "IMAD", "UIMAD"):
        _, outs, _, _ = integers.split(one.operands)
        found += outs
    count = 1
    if name in accesses.LOADS or name in ("LDC", "ULDC"):
        count = max(1, accesses.size_of(one) // 4)
    elif (
        (name == "CS2R" and "32" not in kinds)
        or name in ("DADD", "DMUL", "DFMA")
        or "WIDE" in kinds
        or (name == "F2F" and kinds[-2] == "F64")
        or (name == "I2F" and "F64" in kinds)
        or (name == "F2I" and ("U64" in kinds or "S64" in kinds))
    ):
        count = 2
    elif name in ("IMMA", "HMMA"):
        count = 4
    elif name == "LDSM":
        count = int(kinds[2]) if len(kinds) > 2 else 1
    return found, count


_CONTROL = frozenset(name for name in pipes.NAMES["control"].split())


def decode(lanes: Any, one: Instruction) -> Run:
    """Return what executes an instruction on the lanes of a machine, given those that take part.

    Raises
    ------
    Unknown
        If the instruction is none that the interpreter knows.
    """
    name = one.name
    if name in _COMPUTE:
        return _writing(lanes, one, _COMPUTE[name](lanes, one))
    if name in accesses.LOADS or name in accesses.STORES:
        return accesses.decode(lanes, one)
    made = _OTHERS.get(name)
    if made is None:
        raise Unknown(f"{one.opcode} {', '.join(one.operands)}")
    return made(lanes, one)


def _writing(lanes: Lanes, one: Instruction, compute: Compute) -> Run:
    """Return what writes computed results: predicates, and one register each, or two."""
    names, count = destinations(one)
    writes = [writer(lanes, each, 1 if is_predicate(each) else count) for each in names]

    def run(m: Any, active: np.ndarray) -> None:
        for write, value in zip(writes, compute(m), strict=False):
            write(m, value, active)

    return run


def _move(lanes: Lanes, one: Instruction) -> Run:
    source = words(lanes, one.operands[1])
    return _writing(lanes, one, lambda m: (source(m),))


def _halves(lanes: Lanes, one: Instruction) -> Run:
    """HFMA2 as compilers use it in place of a move: zero times zero plus two numbers of half precision."""
    if any(plain(operand).lstrip("-") != "RZ" for operand in one.operands[1:3]):
        raise Unknown(f"{one.opcode} {', '.join(one.operands)}")
    high, low = (np.float16(float(operand)).view(np.uint16) for operand in one.operands[3:5])
    value = np.uint32(int(high) << 16 | int(low))
    return _writing(lanes, one, lambda m: (value,))


def _select(lanes: Lanes, one: Instruction) -> Run:
    a, b, test = (
        words(lanes, one.operands[1]),
        words(lanes, one.operands[2]),
        predicate(lanes, one.operands[3]),
    )
    if one.name == "FSEL":
        a, b = (_float_bits(lanes, operand) for operand in one.operands[1:3])
    return _writing(lanes, one, lambda m: (np.where(test(m), a(m), b(m)),))


def _float_bits(lanes: Lanes, operand: str) -> Any:
    read = floats(lanes, operand)
    return lambda m: np.asarray(read(m), np.float32).view(np.uint32)


def _constant(lanes: Lanes, one: Instruction) -> Run:
    return accesses.constant(lanes, one)


def _special(lanes: Lanes, one: Instruction) -> Run:
    what = _SPECIAL.get(one.operands[1])
    if what is None:
        raise Unknown(f"{one.opcode} {one.operands[1]}")
    wide_value = one.name == "CS2R" and "32" not in one.modifiers

    def value(m: Any) -> Results:
        found = getattr(m, what)
        return (found.astype(np.uint64) if wide_value else found,)

    return _writing(lanes, one, value)


def _population(lanes: Lanes, one: Instruction) -> Run:
    source = words(lanes, one.operands[1])

    def count(m: Lanes) -> Results:
        spread = np.ascontiguousarray(np.broadcast_to(source(m), (m.count,)))
        return (np.unpackbits(spread.view(np.uint8).reshape(-1, 4), axis=1).sum(axis=1).astype(np.uint32),)

    return _writing(lanes, one, count)


def _leading(lanes: Lanes, one: Instruction) -> Run:
    if "SH" in one.modifiers or "U32" not in one.modifiers:
        raise Unknown(one.opcode)
    source = words(lanes, one.operands[1])

    def found(m: Lanes) -> Results:
        value = np.asarray(source(m), np.float64)
        return (np.where(value > 0, np.log2(np.maximum(value, 1)), 0xFFFFFFFF).astype(np.uint32),)

    return _writing(lanes, one, found)


def _reverse(lanes: Lanes, one: Instruction) -> Run:
    source = words(lanes, one.operands[1])

    def flipped(m: Lanes) -> Results:
        spread = np.ascontiguousarray(np.broadcast_to(source(m), (m.count,)))
        every = np.unpackbits(spread.view(np.uint8).reshape(-1, 4), axis=1, bitorder="little")
        return (np.packbits(every[:, ::-1], axis=1, bitorder="little").view(np.uint32)[:, 0],)

    return _writing(lanes, one, flipped)


def _absolute(lanes: Lanes, one: Instruction) -> Run:
    source = words(lanes, one.operands[1])
    return _writing(
        lanes, one, lambda m: (np.abs(np.asarray(source(m), np.uint32).view(np.int32)).view(np.uint32),)
    )


def _extreme(lanes: Lanes, one: Instruction) -> Run:
    a, b = words(lanes, one.operands[1]), words(lanes, one.operands[2])
    smaller = predicate(lanes, one.operands[-1])
    kind: Any = np.uint32 if "U32" in one.modifiers else np.int32

    def found(m: Lanes) -> Results:
        x, y = np.asarray(a(m), np.uint32).view(kind), np.asarray(b(m), np.uint32).view(kind)
        return (np.where(smaller(m), np.minimum(x, y), np.maximum(x, y)).view(np.uint32),)

    return _writing(lanes, one, found)


def _sum_extreme(lanes: Lanes, one: Instruction) -> Run:
    a, b, c = (words(lanes, operand) for operand in one.operands[1:4])
    smaller = predicate(lanes, one.operands[4])
    kind: Any = np.uint32 if "U32" in one.modifiers else np.int32

    def found(m: Lanes) -> Results:
        total = np.asarray(np.asarray(a(m), np.uint32) + np.asarray(b(m), np.uint32)).view(kind)
        other = np.asarray(c(m), np.uint32).view(kind)
        return (np.where(smaller(m), np.minimum(total, other), np.maximum(total, other)).view(np.uint32),)

    return _writing(lanes, one, found)


def _predicate_logic(lanes: Lanes, one: Instruction) -> Run:
    a, b, c = (predicate(lanes, operand) for operand in one.operands[2:5])
    tables = [int(operand, 16) for operand in one.operands[5:7]]

    def found(m: Lanes) -> Results:
        parts = [np.where(read(m), np.uint32(1), np.uint32(0)) for read in (a, b, c)]
        return tuple((integers.lookup(table, *parts) & np.uint32(1)).astype(bool) for table in tables)

    return _writing(lanes, one, found)


def _nothing(lanes: Lanes, one: Instruction) -> Run:
    return lambda m, active: None


_OTHERS: dict[str, Callable[[Lanes, Instruction], Run]] = {
    **dict.fromkeys(("MOV", "UMOV"), _move),
    **dict.fromkeys(("SEL", "FSEL", "USEL"), _select),
    **dict.fromkeys(("LDC", "ULDC"), _constant),
    **dict.fromkeys(("S2R", "S2UR", "CS2R"), _special),
    **dict.fromkeys(("POPC", "UPOPC"), _population),
    **dict.fromkeys(("FLO", "UFLO"), _leading),
    **dict.fromkeys(("BREV", "UBREV"), _reverse),
    **dict.fromkeys(("IMNMX", "VIMNMX"), _extreme),
    **dict.fromkeys(("PLOP3", "UPLOP3"), _predicate_logic),
    **dict.fromkeys(("VOTE", "VOTEU"), warps.vote),
    **dict.fromkeys(
        ("NOP", "DEPBAR", "LDGDEPBAR", "MEMBAR", "YIELD", "WARPSYNC", "CCTL", "ERRBAR"), _nothing
    ),
    "HFMA2": _halves,
    "LDSM": tensor.load_matrices,
    **dict.fromkeys(("IMMA", "HMMA"), tensor.multiply),
    "P2R": warps.predicates_to_word,
    "R2P": warps.word_to_predicates,
    "VIADDMNMX": _sum_extreme,
    "R2UR": warps.uniform_from,
    "IABS": _absolute,
    "SHFL": warps.shuffle,
}

__all__ = ["Unknown", "decode", "destinations"]
