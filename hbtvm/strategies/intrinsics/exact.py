"""`exact`: a float that is rounded, whatever is computed with it next.

LLVM makes one operation of a product and a sum where the CPU has one that rounds only once. What numpy
computes is rounded twice. The call stays in the program through all of TVM's passes, and is lowered to a
fence of LLVM's, which costs no instruction (`hbtvm.compiler.lowering.lookups`).
"""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx

from hbtvm.strategies.intrinsics.registry import register

EXACT = register("hbtvm.exact", "a value as it is, rounded")


def exact(x: Any) -> Any:
    """Return a float expression's value, rounded to its type."""
    return tirx.call_intrin(str(x.ty.dtype), ir.Op.get(EXACT), x)
