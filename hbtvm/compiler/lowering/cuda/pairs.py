"""Float64 numbers as pairs of float32 numbers, for OpenCL devices without float64.

A kernel's source names its operations on float64 numbers. They are float64's, or, where the driver compiles
it with the macro `PAIRS`, those of pairs: a high part, the number rounded to float32, and a low part, the
rest (double-word arithmetic, see `hbtvm.compiler.lowering.cuda.pairs_source`). With u = 2**-24, a sum of n
numbers errs by less than 3 * n * u**2 of the sum of their magnitudes where parts are not denormal.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm_ffi
from tvm import ir, tirx

from hbtvm.compiler.lowering.cuda.pairs_source import FUNCTIONS
from hbtvm.runtime.opencl.pairs import WIDE, to_pairs

_BINARY = {
    tirx.Add: "add",
    tirx.Sub: "subtract",
    tirx.Mul: "multiply",
    tirx.Div: "divide",
    tirx.Min: "minimum",
    tirx.Max: "maximum",
    tirx.EQ: "equal",
    tirx.LT: "less",
    tirx.LE: "less_equal",
}
_SWAPPED = {tirx.GT: "less", tirx.GE: "less_equal"}
_EXTERN, IF, REINTERPRET = "tirx.call_pure_extern", "prim.if_then_else", "tirx.reinterpret"


def with_pairs(kernels: Any, ordered: bool) -> Any | None:
    """Return kernels that name their operations on float64 numbers; None if some have no name.

    `kernels`: a module for the generator.
    `ordered`: whether pairs may be compared, which rounds the numbers; otherwise None for a kernel that does.
    """
    if not ordered and any(_compares(function.body) for function in kernels.functions.values()):
        return None
    callbacks = [
        *((kind, _named(operation)) for kind, operation in _BINARY.items()),
        *((kind, _named(operation, swapped=True)) for kind, operation in _SWAPPED.items()),
        (tirx.NE, _different),
        (tirx.Cast, _cast),
        (tirx.FloatImm, _constant),
        (ir.Call, _call),
    ]
    named = {
        name: function.with_body(tvm_ffi.structural_map(function.body, callbacks))
        for name, function in kernels.functions.items()
    }
    return ir.IRModule(named) if all(_only_pairs(function.body) for function in named.values()) else None


def _compares(body: Any) -> bool:
    """Return whether a kernel orders float64 numbers."""
    found: list[Any] = []
    kinds = (tirx.LT, tirx.LE, tirx.GT, tirx.GE, tirx.Min, tirx.Max)

    def look(node: Any) -> None:
        if dtype_of(node.a) == "float64":
            found.append(node)

    tvm_ffi.structural_walk(body, [(kind, look) for kind in kinds])
    return bool(found)


def dtype_of(value: Any) -> str:
    """Return an expression's type; an empty text for others."""
    return str(getattr(getattr(value, "ty", None), "dtype", ""))


def is_call(value: Any, name: str) -> bool:
    """Return whether an expression is a call of one of TVM's operations."""
    return isinstance(value, ir.Call) and str(getattr(value.op, "name", "")) == name


def _operation(name: str, dtype: str, *operands: Any) -> Any:
    return tirx.call_pure_extern(dtype, f"hbtvm_{name}", *operands)


def _named(operation: str, swapped: bool = False) -> Any:
    def replaced(node: Any) -> Any:
        if dtype_of(node.a) != "float64":
            return node
        operands = (node.b, node.a) if swapped else (node.a, node.b)
        return _operation(operation, dtype_of(node), *operands)

    return replaced


def _different(node: Any) -> Any:
    return node if dtype_of(node.a) != "float64" else tirx.Not(_operation("equal", "bool", node.a, node.b))


def _cast(cast: Any) -> Any:
    """Return a conversion from or to float64 by its name."""
    to, of = dtype_of(cast), dtype_of(cast.value)
    if to == of or "float64" not in (to, of) or "x" in to:
        return cast
    if to == "float64":
        if of == "float32":
            return tirx.call_pure_extern(to, WIDE, cast.value)
        return cast if of.startswith("float") else _operation("whole", to, cast.value.astype("int64"))
    if to == "float32":
        return _operation("narrow", to, cast.value)
    return cast if to.startswith("float") else _operation("truncated", "int64", cast.value).astype(to)


def _constant(number: Any) -> Any:
    """Return a constant that is exact as float64; as a pair, beyond float32's range, its largest number."""
    if dtype_of(number) != "float64":
        return number
    value = float(number.value)
    with np.errstate(over="ignore"):
        exact = float(np.float32(value)) == value
    if exact and np.isfinite(value):
        return tirx.call_pure_extern("float64", WIDE, tirx.const(value, "float32"))
    largest = float(np.finfo(np.float32).max)
    nearest = np.clip(value, -largest, largest) if np.isfinite(value) else value
    parts = to_pairs(np.array(nearest)).view(np.int32)
    bits = tirx.const(int(np.float64(value).view(np.int64)), "int64")
    return _operation("constant", "float64", bits, *(tirx.const(int(part), "int32") for part in parts))


def _call(call: Any) -> Any:
    """Return a call of a driver's function, or a number's bits, by the name that pairs have."""
    if is_call(call, REINTERPRET) and dtype_of(call) == "float64" and dtype_of(call.args[0]) == "int64":
        return _operation("number", "float64", call.args[0])
    if not is_call(call, _EXTERN) or dtype_of(call) != "float64":
        return call
    name, *operands = call.args
    return _operation(str(name.value), "float64", *operands) if str(name.value) in FUNCTIONS else call


def _only_pairs(body: Any) -> bool:
    """Return whether all operations on float64 have names."""
    others: list[Any] = []

    def look(node: Any) -> None:
        kind = dtype_of(node)
        if kind.startswith("float64"):
            known = isinstance(node, (tirx.Var, ir.TensorLoad, tirx.Select, tirx.Let)) or _is_known_call(node)
            if kind != "float64" or not known:
                others.append(node)
        elif (
            kind
            and isinstance(node, tirx.Expr)
            and not isinstance(node, tirx.Let)
            and not _is_known_call(node)
        ):
            operands = [getattr(node, name, None) for name in ("a", "value")]
            operands += list(node.args) if isinstance(node, ir.Call) else []
            if any(dtype_of(operand).startswith("float64") for operand in operands):
                others.append(node)

    tvm_ffi.structural_walk(body, look)
    return not others


def _is_known_call(node: Any) -> bool:
    return is_call(node, IF) or (is_call(node, _EXTERN) and str(node.args[0].value).startswith("hbtvm_"))
