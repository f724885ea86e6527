"""What floating-point instructions and conversions compute, as `benchmarks.gpu.bounds.integers`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.gpu.bounds.integers import COMPARES, Compute, Results, combine
from benchmarks.gpu.bounds.lanes import Lanes, Unknown, floats, predicate, wide, words
from benchmarks.gpu.bounds.sass import Instruction

_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "ADD": lambda a, b: a + b,
    "MUL": lambda a, b: a * b,
}


def bits(value: Any, double: bool) -> Any:
    """A number's bits, as results are written."""
    return np.asarray(value, np.float64 if double else np.float32).view(np.uint64 if double else np.uint32)


def arithmetic(lanes: Lanes, one: Instruction) -> Compute:
    """FADD, FMUL, FFMA and the same in double precision.

    A fused product and sum of float32 is computed in float64, which rounds twice in rare cases; that of
    float64 rounds the product. What kernels compute by these is not compared to the bit.
    """
    double, name = one.name[0] == "D", one.name[1:]
    sources = [floats(lanes, operand, double) for operand in one.operands[1:]]
    if name in _ARITHMETIC:
        act = _ARITHMETIC[name]
        return lambda m: (bits(act(sources[0](m), sources[1](m)), double),)

    def fused(m: Lanes) -> Results:
        a, b, c = (np.asarray(source(m), np.float64) for source in sources[:3])
        return (bits(a * b + c, double),)

    return fused


def compare(lanes: Lanes, one: Instruction) -> Compute:
    """FSETP and DSETP; comparisons that end in U hold for what is not a number."""
    how, test, given = _test(lanes, one, 2)

    def compute(m: Lanes) -> Results:
        found, other = test(m), given(m)
        return combine(how, found, other), combine(how, ~np.asarray(found), other)

    return compute


def comparison(lanes: Lanes, one: Instruction) -> Compute:
    """FSET: 1 where a comparison holds and 0 where not, as float32, or as all bits of a word."""
    how, test, given = _test(lanes, one, 1)
    holds = np.float32(1).view(np.uint32) if "BF" in one.modifiers else np.uint32(0xFFFFFFFF)
    return lambda m: (np.where(combine(how, test(m), given(m)), holds, np.uint32(0)),)


def _test(lanes: Lanes, one: Instruction, first: int) -> tuple[str, Callable[[Lanes], Any], Any]:
    """Return how a comparison (of operands from `first` on) meets a predicate, what it finds, and that."""
    double = one.name == "DSETP"
    a, b = (floats(lanes, operand, double) for operand in one.operands[first : first + 2])
    given = predicate(lanes, one.operands[first + 2])
    kind = next(k for k in one.modifiers if k not in ("FTZ", "AND", "OR", "XOR", "BF"))
    how = next((k for k in one.modifiers if k in ("AND", "OR", "XOR")), "AND")

    def test(m: Lanes) -> Any:
        x, y = a(m), b(m)
        unordered = np.isnan(x) | np.isnan(y)
        if kind in ("NAN", "NUM"):
            return unordered if kind == "NAN" else ~unordered
        if kind.endswith("U"):
            return COMPARES[kind[:-1]](x, y) | unordered
        return COMPARES[kind](x, y) & ~unordered

    return how, test, given


def extreme(lanes: Lanes, one: Instruction) -> Compute:
    """FMNMX: the smaller number where the predicate holds, else the larger."""
    a, b = floats(lanes, one.operands[1]), floats(lanes, one.operands[2])
    smaller = predicate(lanes, one.operands[3])
    return lambda m: (bits(np.where(smaller(m), np.fmin(a(m), b(m)), np.fmax(a(m), b(m))), False),)


_INTEGERS: dict[str, Any] = {
    "U32": np.uint32,
    "S32": np.int32,
    "U64": np.uint64,
    "S64": np.int64,
    "U16": np.uint16,
}


def convert(lanes: Lanes, one: Instruction) -> Compute:
    """F2F, I2F and F2I: truncation for integers, rounding to nearest for others, up where RP says so."""
    kinds, source = one.modifiers, one.operands[1]
    if one.name == "F2F":
        to, given = kinds[-2:]
        read = floats(lanes, source, given == "F64")
        return lambda m: (bits(read(m), to == "F64"),)
    whole = next((k for k in kinds if k in _INTEGERS), "S32")
    double = "F64" in kinds
    if one.name in ("I2F", "I2FP"):
        fetch = wide(lanes, source) if whole.endswith("64") else words(lanes, source)
        kind: Any = _INTEGERS[whole]

        def real(m: Lanes) -> Results:
            exact = np.asarray(fetch(m)).view(kind).astype(np.float64)
            made = exact if double else exact.astype(np.float32)
            if "RP" in kinds and not double:
                made = np.where(made < exact, np.nextafter(made, np.float32(np.inf)), made)
            return (bits(made, double),)

        return real
    if one.name == "F2I" and "TRUNC" in kinds:
        value = floats(lanes, source, double)
        limits = np.iinfo(_INTEGERS[whole])

        def truncated(m: Lanes) -> Results:
            found = np.trunc(np.nan_to_num(np.asarray(value(m), np.float64)))
            return (np.clip(found, float(limits.min), float(limits.max)).astype(np.int64).view(np.uint64),)

        return truncated
    raise Unknown(one.opcode)


def needs_care(lanes: Lanes, one: Instruction) -> Compute:
    """FCHK: whether a quotient may leave the range of normal numbers on its way."""
    a, b = floats(lanes, one.operands[1]), floats(lanes, one.operands[2])

    def compute(m: Lanes) -> Results:
        top, bottom = np.abs(np.asarray(a(m), np.float64)), np.abs(np.asarray(b(m), np.float64))
        plain = (
            (bottom > 2.0**-126) & (bottom < 2.0**126) & (top < 2.0**126) & ((top > 2.0**-100) | (top == 0))
        )
        return (~plain,)

    return compute


def special(lanes: Lanes, one: Instruction) -> Compute:
    """MUFU: reciprocals (of a double's high word, too), square roots, powers and logarithms of 2."""
    kind = one.modifiers[0]
    if kind == "RCP64H":
        top = words(lanes, one.operands[1])

        def reciprocal(m: Lanes) -> Results:
            whole = (np.asarray(top(m), np.uint64) << np.uint64(32)).view(np.float64)
            return ((1 / whole).view(np.uint64) >> np.uint64(32),)

        return reciprocal
    acts: dict[str, Callable[[Any], Any]] = {
        "RCP": lambda x: 1 / x,
        "RSQ": lambda x: 1 / np.sqrt(x),
        "SQRT": np.sqrt,
        "EX2": np.exp2,
        "LG2": np.log2,
    }
    if kind not in acts:
        raise Unknown(one.opcode)
    read, act = floats(lanes, one.operands[1]), acts[kind]
    return lambda m: (bits(act(np.asarray(read(m), np.float64)), False),)
