"""`exact`: prevent contraction of a product and a sum to a fused multiply-add.

LLVM contracts them where the CPU has such an instruction, which rounds once; numpy rounds twice. TVM's passes
keep the call, and `hbtvm.compiler.lowering.lookups` lowers it to a fence of LLVM, which costs no instruction.
"""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx

from hbtvm.strategies.intrinsics.registry import register

EXACT = register("hbtvm.exact", "a rounded value")


def exact(x: Any) -> Any:
    """Return a float expression's value, rounded to its type."""
    return tirx.call_intrin(str(x.ty.dtype), ir.Op.get(EXACT), x)
