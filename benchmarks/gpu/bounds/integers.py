"""What integer, logic and move instructions compute.

Each function takes an instruction and returns what computes its results on all lanes, as uint32 (or pairs of
registers as uint64); see `benchmarks.gpu.bounds.semantics` for how results are written.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.gpu.bounds.lanes import Lanes, Read, Unknown, is_predicate, plain, predicate, wide, words
from benchmarks.gpu.bounds.sass import Instruction

U64, LOW = np.uint64, np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)

Results = tuple[Any, ...]
Compute = Callable[[Lanes], Results]


def split(operands: Sequence[str]) -> tuple[list[str], list[str], list[str], list[str]]:
    """Return destination, carries out, sources and carries in of an instruction with that order."""
    rest = list(operands[1:])
    outs: list[str] = []
    while rest and is_predicate(rest[0]):
        outs.append(rest.pop(0))
    ins: list[str] = []
    while rest and is_predicate(rest[-1]):
        ins.insert(0, rest.pop())
    return [operands[0]], outs, rest, ins


def addend(lanes: Lanes, operand: str) -> Read:
    """An addend as uint64; a negated one is the complement and 1, which makes the carry right."""
    if operand.startswith("-") and not operand.startswith("-0x"):
        own = words(lanes, operand[1:])
        return lambda m: (np.asarray(own(m), U64) ^ LOW) + U64(1)
    own = words(lanes, operand)
    return lambda m: np.asarray(own(m), U64)


def carries_of(lanes: Lanes, one: Instruction, ins: Sequence[str]) -> list[Read]:
    """The carries that a sum takes."""
    return [predicate(lanes, p) for p in ins if p not in ("!PT", "!UPT")] if "X" in one.modifiers else []


def carried(total: Any, carries: Sequence[Read], outs: Sequence[str], m: Lanes) -> Results:
    """A sum with the carries that it takes, and those that it gives."""
    for carry in carries:
        total = total + carry(m).astype(U64)
    return (total & LOW, *((total >> _32) > U64(n) for n in range(len(outs))))


def add(lanes: Lanes, one: Instruction) -> Compute:
    """IADD3, VIADD, UIADD3: a sum with carries."""
    _, outs, sources, ins = split(one.operands)
    parts = [addend(lanes, source) for source in sources if plain(source) not in ("RZ", "URZ")]
    carries = carries_of(lanes, one, ins)

    def compute(m: Lanes) -> Results:
        total: Any = U64(0)
        for part in parts:
            total = total + part(m)
        return carried(total, carries, outs, m)

    return compute


def multiply_add(lanes: Lanes, one: Instruction) -> Compute:
    """IMAD and its forms."""
    _, outs, sources, ins = split(one.operands)
    a, b, c = sources
    kinds = one.modifiers
    signed = "U32" not in kinds
    carries = carries_of(lanes, one, ins)
    if "WIDE" in kinds or "HI" in kinds:
        left, right = words(lanes, a), words(lanes, b)
        third = wide(lanes, c)

        def whole(m: Lanes) -> Any:
            x, y = np.asarray(left(m), np.uint32), np.asarray(right(m), np.uint32)
            if signed:
                return x.view(np.int32).astype(np.int64).view(U64) * y.view(np.int32).astype(np.int64).view(
                    U64
                )
            return x.astype(U64) * y.astype(U64)

        def compute_wide(m: Lanes) -> Results:
            product, addition = whole(m), third(m)
            total = product + addition
            over = total < addition
            for carry in carries:
                total = total + carry(m).astype(U64)
            if "HI" in kinds:
                return (total >> _32,)
            return (total, *(over for _ in outs))

        return compute_wide
    if plain(a) in ("RZ", "URZ") or plain(b) in ("RZ", "URZ"):
        factor: Read | None = None
    else:
        left, right = words(lanes, a), words(lanes, b)
        if plain(b) == "0x1":
            factor = lambda m: np.asarray(left(m), U64)  # noqa: E731
        else:
            factor = lambda m: np.asarray(left(m), U64) * np.asarray(right(m), U64) & LOW  # noqa: E731
    third = addend(lanes, c)

    def compute(m: Lanes) -> Results:
        total = third(m) if factor is None else factor(m) + third(m)
        return carried(total, carries, outs, m)

    return compute


def scaled_add(lanes: Lanes, one: Instruction) -> Compute:
    """LEA and its forms: a shifted number, or its high word, plus another."""
    _, outs, sources, ins = split(one.operands)
    kinds = one.modifiers
    amount = int(sources[-1], 0)
    a, b = words(lanes, sources[0]), addend(lanes, sources[1])
    carries = carries_of(lanes, one, ins)
    above = words(lanes, sources[2]) if len(sources) == 4 else None

    def compute(m: Lanes) -> Results:
        x = np.asarray(a(m), np.uint32)
        if "HI" in kinds:
            if "SX32" in kinds:
                shifted = (x.view(np.int32).astype(np.int64) >> (32 - amount)).view(U64) & LOW
            else:
                top = np.asarray(above(m), U64) if above is not None else U64(0)
                shifted = ((top << _32 | x.astype(U64)) >> U64(32 - amount)) & LOW
        else:
            shifted = x.astype(U64) << U64(amount) & LOW
        total = shifted + b(m)
        return carried(total, carries, outs, m)

    return compute


def shift(lanes: Lanes, one: Instruction) -> Compute:
    """SHF: bits of a pair of words, shifted."""
    low, by, high = (words(lanes, operand) for operand in one.operands[1:4])
    left = "L" in one.modifiers
    kind = next(m for m in one.modifiers if m in ("U32", "S32", "U64", "S64"))
    want_high = "HI" in one.modifiers

    def compute(m: Lanes) -> Results:
        n = np.asarray(by(m), U64)
        n = n & U64(31 if "W" in one.modifiers else 63)
        whole = np.asarray(high(m), U64) << _32 | np.asarray(low(m), U64)
        if left:
            moved = whole << n
            return ((moved >> _32 if want_high else moved) & LOW,)
        if want_high:
            top = np.asarray(high(m), np.uint32)
            if kind in ("S32", "S64"):
                return ((top.view(np.int32).astype(np.int64) >> n.astype(np.int64)).view(U64) & LOW,)
            return (top.astype(U64) >> n,)
        if kind in ("S32", "S64"):
            return ((whole.view(np.int64) >> n.astype(np.int64)).view(U64) & LOW,)
        return ((whole >> n) & LOW,)

    return compute


def logic(lanes: Lanes, one: Instruction) -> Compute:
    """LOP3: any function of three bits; a predicate tells whether a bit is set."""
    rest = list(one.operands)
    outs = []
    while is_predicate(rest[0]):
        outs.append(rest.pop(0))
    a, b, c = (words(lanes, operand) for operand in rest[1:4])
    table = int(rest[4], 16)

    def compute(m: Lanes) -> Results:
        found = lookup(table, a(m), b(m), c(m))
        found = np.broadcast_to(np.asarray(found, np.uint32), (m.count,))
        return (*(found != 0 for _ in outs), found)

    return compute


_KNOWN: dict[int, Callable[[Any, Any, Any], Any]] = {
    0xC0: lambda a, b, c: a & b,
    0xFC: lambda a, b, c: a | b,
    0x3C: lambda a, b, c: a ^ b,
    0x33: lambda a, b, c: ~b,
    0x0F: lambda a, b, c: ~a,
    0x30: lambda a, b, c: a & ~b,
    0x0C: lambda a, b, c: ~a & b,
    0xF8: lambda a, b, c: a | (b & c),
    0xEA: lambda a, b, c: (a & b) | c,
    0x80: lambda a, b, c: a & b & c,
    0xFE: lambda a, b, c: a | b | c,
}


def lookup(table: int, a: Any, b: Any, c: Any) -> Any:
    """Return, bit by bit, the entry of a table of 8 bits at index 4 * a + 2 * b + c."""
    known = _KNOWN.get(table)
    if known:
        return known(a, b, c)
    found: Any = np.zeros_like(a)
    for index in range(8):
        if table >> index & 1:
            x = a if index & 4 else ~a
            y = b if index & 2 else ~b
            z = c if index & 1 else ~c
            found = found | (x & y & z)
    return found


def permute(lanes: Lanes, one: Instruction) -> Compute:
    """PRMT: any four of eight bytes."""
    if len(one.modifiers):
        raise Unknown(one.opcode)
    a, selector, b = (words(lanes, operand) for operand in one.operands[1:4])

    def compute(m: Lanes) -> Results:
        whole = np.asarray(b(m), U64) << _32 | np.asarray(a(m), U64)
        chosen, out = np.asarray(selector(m), U64), U64(0)
        for n in range(4):
            code = chosen >> U64(4 * n) & U64(15)
            byte = whole >> (U64(8) * (code & U64(7))) & U64(255)
            sign = np.where(byte & U64(128), U64(255), U64(0))
            out = out | np.where(code & U64(8), sign, byte) << U64(8 * n)
        return (out,)

    return compute


COMPARES: dict[str, Callable[[Any, Any], Any]] = {
    "LT": lambda a, b: a < b,
    "LE": lambda a, b: a <= b,
    "GT": lambda a, b: a > b,
    "GE": lambda a, b: a >= b,
    "EQ": lambda a, b: a == b,
    "NE": lambda a, b: a != b,
}


def combine(kind: str, test: Any, other: Any) -> Any:
    """A test together with another predicate, as the modifier AND, OR or XOR says."""
    return test & other if kind == "AND" else test | other if kind == "OR" else test ^ other


def compare(lanes: Lanes, one: Instruction) -> Compute:
    """ISETP: compares words, or with EX the high words of numbers whose low words were compared before."""
    a, b = words(lanes, one.operands[2]), words(lanes, one.operands[3])
    given = predicate(lanes, one.operands[4])
    kinds = one.modifiers
    kind: Any = np.uint32 if "U32" in kinds else np.int32
    how = next((k for k in kinds if k in ("AND", "OR", "XOR")), "AND")
    below = predicate(lanes, one.operands[5]) if "EX" in kinds else None

    def compute(m: Lanes) -> Results:
        x, y = np.asarray(a(m), np.uint32).view(kind), np.asarray(b(m), np.uint32).view(kind)
        test = COMPARES[kinds[0]](x, y)
        if below is not None:
            if kinds[0] == "NE":
                test = test | below(m)
            elif kinds[0] == "EQ":
                test = test & below(m)
            else:
                test = COMPARES[kinds[0][0] + "T"](x, y) | ((x == y) & below(m))
        other = given(m)
        return combine(how, test, other), combine(how, ~np.asarray(test), other)

    return compute
