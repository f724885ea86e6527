"""Pure intrinsics of this project: calls that TVM's passes keep and hbtvm's last passes lower."""

from __future__ import annotations

from tvm import ir

_PURE = 1  # tirx.CallEffectKind.Pure, as a number


def register(name: str, description: str) -> str:
    """Register a vectorizable intrinsic without side effects, and return its name."""
    ir._ffi_api.RegisterOp(name, description)
    attributes = {"TVectorizable": True, "TCallEffectKind": _PURE, "TScriptPrinterName": name}
    for key, value in attributes.items():
        ir._ffi_api.RegisterOpAttr(name, key, value, 10)
    return name
