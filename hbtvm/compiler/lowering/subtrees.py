"""Lower the tests of a subtree (see `hbtvm.strategies.intrinsics.subtree`) to shuffles of bytes."""

from __future__ import annotations

from typing import Any

from tvm import tirx
from tvm.tirx.op import register_intrin_lowering

from hbtvm.strategies.intrinsics.subtree import NODES, REGISTER, TESTS_OF, blocks_of, record_bytes

_KIND = f"int8x{REGISTER}"


def lower_tests(call: Any) -> Any:
    """Return the instructions: one shuffle for each register of ranks, a comparison, and its mask."""
    record, index, row, columns = call.args
    count = int(columns.value)
    name = tirx.Var("record", "int32")
    start = name * tirx.const(record_bytes(count), "int32")

    def load(base: Any, offset: Any) -> Any:
        at = base.indices[0]
        return tirx.BufferLoad(
            base.source, [tirx.Ramp(at + tirx.Cast(str(at.ty.dtype), offset), 1, REGISTER)]
        )

    found = None
    for block in range(blocks_of(count)):
        ranks = load(row, tirx.const(REGISTER * block, "int32"))
        places = load(record, start + tirx.const(NODES * block, "int32"))
        part = tirx.call_llvm_pure_intrin(_KIND, "llvm.x86.ssse3.pshuf.b.128", ranks, places)
        found = part if found is None else found | part
    limits = load(record, start + tirx.const(NODES * blocks_of(count), "int32"))
    above = tirx.Select(found > limits, tirx.const(-1, _KIND), tirx.const(0, _KIND))
    mask = tirx.call_llvm_pure_intrin("int32", "llvm.x86.sse2.pmovmskb.128", above)
    return tirx.Let(name, index, mask & tirx.const(255, "int32"))


register_intrin_lowering(TESTS_OF, target="llvm", f=lower_tests)
