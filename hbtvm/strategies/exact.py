"""`exact`: a float that is rounded, whatever is computed with it next.

LLVM makes one operation of a product and a sum where the CPU has one that rounds only once. What numpy
computes is rounded twice. The call stays in the program through all of TVM's passes, and is lowered to a
fence of LLVM's, which costs no instruction (`hbtvm.compiler.lowering.lookups`).
"""

from __future__ import annotations

from typing import Any

from tvm import ir, tirx

EXACT = "hbtvm.exact"

_PURE = 1  # tirx.CallEffectKind.Pure, as a number


def exact(x: Any) -> Any:
    """Return a float expression's value, rounded to its type."""
    return tirx.call_intrin(str(x.ty.dtype), ir.Op.get(EXACT), x)


def _register() -> None:
    ir._ffi_api.RegisterOp(EXACT, "a value as it is, rounded")
    for key, value in (
        ("TVectorizable", True),
        ("TCallEffectKind", _PURE),
        ("TScriptPrinterName", EXACT),
    ):
        ir._ffi_api.RegisterOpAttr(EXACT, key, value, 10)


_register()
