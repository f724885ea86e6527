"""Lower searches for ranks, and tests of a subtree by ranks, to instructions for vectors.

See `hbtvm.strategies.intrinsics.rank` and `hbtvm.strategies.intrinsics.subtree`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import tirx
from tvm.tirx.op import register_intrin_lowering

from hbtvm.compiler.lowering.indices import entry_at
from hbtvm.compiler.lowering.lookups import on_arm, register_lanes
from hbtvm.strategies.intrinsics.rank import KEYS, RANK_OF, levels_of, starts_of
from hbtvm.strategies.intrinsics.subtree import NODES, REGISTER, TESTS_OF, blocks_of, record_size
from hbtvm.strategies.intrinsics.walk import COLUMN_BITS, END_OF

_SHUFFLES = {REGISTER: "llvm.x86.ssse3.pshuf.b.128", 2 * REGISTER: "llvm.x86.avx2.pshuf.b"}
"""By bytes: the instruction that shuffles each 16 bytes."""


def lower_tests(call: Any) -> Any:
    """Return the instructions: a shuffle for each register of ranks, or pair, a comparison, and its mask."""
    record, index, row, columns = call.args
    dtype = str(record.ty.dtype)
    size, count = np.dtype(dtype).itemsize, int(columns.value)
    lanes = REGISTER // size
    name = tirx.Var("record", "int32")
    start = name * tirx.const(record_size(count, dtype), "int32")

    def load(base: Any, offset: Any, wide: int = lanes) -> Any:
        at = base.indices[0]
        return tirx.BufferLoad(base.source, [tirx.Ramp(at + tirx.Cast(str(at.ty.dtype), offset), 1, wide)])

    def places(block: int, wide: int) -> Any:
        """Return the columns of all nodes, if they are in these registers."""
        kind = f"int8x{wide * size}"
        ranks = load(row, tirx.const(lanes * block, "int32"), wide)
        entries = load(record, start + tirx.const(NODES * block, "int32"), wide)
        shuffled = (_as(kind, ranks), _as(kind, entries))
        return tirx.call_llvm_pure_intrin(kind, _SHUFFLES[wide * size], *shuffled)

    blocks, narrow, pairs = blocks_of(count, dtype), f"int8x{REGISTER}", 0
    parts = []
    # The places of a block's nodes fill a register only if ranks are words.
    if NODES * size == REGISTER and register_lanes("int8") > REGISTER:
        pairs = blocks // 2
    if pairs:
        both = tirx.Var("both", f"int8x{2 * REGISTER}")
        parts = [tirx.vectorlow(narrow, both), tirx.vectorhigh(narrow, both)]
    parts += [places(block, lanes) for block in range(2 * pairs, blocks)]
    limits = load(record, start + tirx.const(NODES * blocks, "int32"))
    kind = f"{dtype}x{lanes}"
    above = tirx.Select(_as(kind, _either(parts)) > limits, tirx.const(-1, kind), tirx.const(0, kind))
    if size > 1:
        above = tirx.call_llvm_pure_intrin(narrow, "llvm.x86.sse2.packsswb.128", above, above)
    mask = tirx.call_llvm_pure_intrin("int32", "llvm.x86.sse2.pmovmskb.128", above)
    tests = mask & tirx.const(255, "int32")
    if pairs:
        tests = tirx.Let(both, _either([places(2 * pair, 2 * lanes) for pair in range(pairs)]), tests)
    return tirx.Let(name, index, tests)


def _either(parts: list[Any]) -> Any:
    """Return the bits that are set in any part."""
    found = parts[0]
    for part in parts[1:]:
        found = found | part
    return found


def _as(kind: str, vector: Any) -> Any:
    """Return a vector's bits as another type."""
    return vector if str(vector.ty.dtype) == kind else tirx.reinterpret(kind, vector)


def lower_rank(call: Any) -> Any:
    """Return the comparisons of a search, each with a node's thresholds, and the sums of their results."""
    table, value, bits = call.args
    number, at = int(bits.value), table.indices[0]
    dtype = str(table.ty.dtype)
    x = tirx.Var("x", dtype)
    registers, below = levels_of(number)
    starts = starts_of(number)

    def entries(start: Any, count: int = KEYS) -> Any:
        return tirx.BufferLoad(table.source, [tirx.Ramp(at + tirx.Cast(str(at.ty.dtype), start), 1, count)])

    def above(start: Any, count: int = 1) -> Any:
        """Return how many of some registers' thresholds x is above."""
        # The comparisons are false for NaN, which therefore ranks highest.
        if on_arm():  # sums of masks take an instruction each, and counts of a mask's bits several
            total = sum((mask(start, n) for n in range(1, count)), mask(start, 0))
            return _summed(total) + const(KEYS * count)
        counts, done = [], 0
        for size in [size for size in (4, 2, 1) if count & size] if register_lanes("int8") else [1] * count:
            if size > 1 and register_lanes("int8") == 2 * REGISTER:
                counts.append(_packed([~mask(start, done + n) for n in range(size)]))
            else:  # LLVM counts the bits of a mask of any width
                kind = f"int32x{KEYS * size}"
                test = tirx.Broadcast(x, KEYS * size) <= entries(start + const(KEYS * done), KEYS * size)
                counts.append(_summed(tirx.Select(test, tirx.const(0, kind), tirx.const(1, kind))))
            done += size
        return sum(counts[1:], counts[0])

    def mask(start: Any, register: int) -> Any:
        """Return -1 for each of a register's thresholds that x is not above."""
        test = tirx.Broadcast(x, KEYS) <= entries(start + const(KEYS * register))
        kind = f"int32x{KEYS}"
        return tirx.Select(test, tirx.const(-1, kind), tirx.const(0, kind))

    def const(constant: int) -> Any:
        return tirx.const(constant, "int32")

    nodes = [tirx.Var(f"node_{level}", "int32") for level in range(below + 1)]
    steps = [above(const(0), registers)]
    for start, node in zip(starts[1:], nodes[:-1], strict=False):
        steps.append(node * const(KEYS + 1) + above(node * const(KEYS) + const(start)))
    result = tirx.min(nodes[-1], const(2**number - 1))
    for node, step in zip(reversed(nodes), reversed(steps), strict=True):
        result = tirx.Let(node, step, result)
    return tirx.Let(x, value, result)


def _packed(masks: list[Any]) -> Any:
    """Return how many lanes of two or four registers of AVX2 are -1, and not 0."""
    pairs = [
        tirx.call_llvm_pure_intrin("int16x16", "llvm.x86.avx2.packssdw", *masks[n : n + 2])
        for n in range(0, len(masks), 2)
    ]
    packed = _as("int8x32", pairs[0])
    if pairs[1:]:
        packed = tirx.call_llvm_pure_intrin("int8x32", "llvm.x86.avx2.packsswb", *pairs)
    bits = tirx.call_llvm_pure_intrin("int32", "llvm.x86.avx2.pmovmskb", packed)
    count = tirx.call_llvm_pure_intrin("int32", "llvm.ctpop", bits)
    return count if pairs[1:] else count >> tirx.const(1, "int32")


def _summed(vector: Any) -> Any:
    """Return the sum of a vector's lanes, int32."""
    return tirx.call_llvm_pure_intrin("int32", "llvm.vector.reduce.add", vector)


def lower_end(call: Any) -> Any:
    """Return the steps of a walk, in which a comparison's carry is subtracted from the next node's number.

    Numbers within a level count from 1 on: the children of node m are 2 * m - 1 and 2 * m.
    """
    word, node, row, *ends = call.args
    dtype, (level, depth) = str(row.ty.dtype), (int(end.value) for end in ends)
    nodes = [tirx.Var(f"node_{number}", "int32") for number in range(level, depth + 1)]
    result = nodes[-1] - 1
    for number in reversed(range(level, depth)):
        here, there = nodes[number - level : number - level + 2]
        entry = tirx.Var(f"word_{number}", "int32")
        limit = (entry >> tirx.const(COLUMN_BITS, "int32")).astype(dtype)
        is_left = entry_at(row, entry & tirx.const(2**COLUMN_BITS - 1, "int32")) < limit
        following = tirx.Let(there, here * 2 - is_left.astype("int32"), result)
        result = tirx.Let(entry, entry_at(word, here + tirx.const(2**number - 1, "int32")), following)
    return tirx.Let(nodes[0], node + 1, result)


register_intrin_lowering(END_OF, target="llvm", f=lower_end)
register_intrin_lowering(RANK_OF, target="llvm", f=lower_rank)
register_intrin_lowering(TESTS_OF, target="llvm", f=lower_tests)
