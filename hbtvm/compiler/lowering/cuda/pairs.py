"""Sums of scores in pairs of float32 numbers, for OpenCL devices without float64.

A kernel that reads float32 rows and tables uses float64 for sums alone: it converts float32 numbers, adds,
divides by the divisor and adds the base score. Its source names these operations, which are float64's, or,
where the driver compiles it with the macro `PAIRS`, those of pairs: a high part, the number rounded to
float32, and a low part, the rest (double-word arithmetic: Joldes, Muller and Popescu, 2017). With
u = 2**-24, an addition errs by less than 3 * u**2 of its sum where parts are not denormal, and so does a sum
of n numbers by less than 3 * n * u**2 of the sum of their magnitudes.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm_ffi
from tvm import ir, tirx

from hbtvm.runtime.gpu.launch import BASE, BASE_SCORE, DIVISOR
from hbtvm.runtime.opencl.pairs import ADD, DIVIDE, EQUAL, PAIRS, WIDE

FLOAT64 = f"""#ifdef cl_khr_fp64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif
#define {ADD}(a, b) ((a) + (b))
#define {DIVIDE}(a, b) ((a) / (b))
#define {EQUAL}(a, b) ((a) == (b))
#define {WIDE}(a) convert_double(a)
"""
"""The operations of float64; first lines of OpenCL source."""

EITHER = f"""#ifdef {PAIRS}
#define double float2
float2 hbtvm_exact(float a, float b) {{
  const float sum = a + b, rest = sum - a;
  return (float2)(sum, (a - (sum - rest)) + (b - rest));
}}
float2 hbtvm_normal(float a, float b) {{
  const float sum = a + b;
  return (float2)(sum, b - (sum - a));
}}
float2 {ADD}(float2 a, float2 b) {{
  const float2 high = hbtvm_exact(a.x, b.x), low = hbtvm_exact(a.y, b.y);
  const float2 sum = hbtvm_normal(high.x, high.y + low.x);
  return hbtvm_normal(sum.x, low.y + sum.y);
}}
float2 {DIVIDE}(float2 a, float2 b) {{
  const float first = a.x / b.x, product = first * b.x;
  const float rest = ((a.x - product) - fma(first, b.x, -product)) + (a.y - first * b.y);
  return hbtvm_normal(first, rest / b.x);
}}
bool {EQUAL}(float2 a, float2 b) {{ return a.x == b.x && a.y == b.y; }}
float2 {WIDE}(float a) {{ return (float2)(a, 0.0f); }}
#else
{FLOAT64}#endif
"""
"""The same for kernels that `with_pairs` returns."""

_OPERATIONS = ((tirx.Add, ADD), (tirx.Div, DIVIDE), (tirx.EQ, EQUAL))
_MOST = float(np.finfo(np.float32).max)
_PARAMETERS = (f"{BASE}_ptr", "scores_ptr", BASE_SCORE, DIVISOR)


def with_pairs(kernels: Any) -> Any | None:
    """Return kernels that name their operations of float64; None if they have other uses of float64.

    `kernels`: a module for the generator, with a single function.
    """
    ((name, function),) = kernels.functions.items()
    for parameter in function.params:
        if "float64" in _types(parameter.ty) and str(parameter.name) not in _PARAMETERS:
            return None
    body = tvm_ffi.structural_map(
        function.body,
        [
            *((kind, _named(operation)) for kind, operation in _OPERATIONS),
            (tirx.Cast, _widened),
            (tirx.FloatImm, _constant),
        ],
    )
    return ir.IRModule({name: function.with_body(body)}) if _only_pairs(body) else None


def _types(kind: Any) -> str:
    return str(getattr(kind, "element_type", None) or kind)


def _is_wide(value: Any) -> bool:
    return str(value.ty.dtype) == "float64"


def _named(operation: str) -> Any:
    def replaced(node: Any) -> Any:
        if not _is_wide(node.a):
            return node
        return tirx.call_pure_extern(str(node.ty.dtype), operation, node.a, node.b)

    return replaced


def _widened(cast: Any) -> Any:
    if not _is_wide(cast) or str(cast.value.ty.dtype) != "float32":
        return cast
    return tirx.call_pure_extern("float64", WIDE, cast.value)


def _constant(number: Any) -> Any:
    value = float(number.value)
    if not _is_wide(number) or abs(value) > _MOST or float(np.float32(value)) != value:
        return number
    return tirx.call_pure_extern("float64", WIDE, tirx.const(value, "float32"))


def _only_pairs(body: Any) -> bool:
    """Return whether all operations on float64 are those of pairs."""
    others: list[Any] = []

    def look(node: Any) -> None:
        kind = str(getattr(getattr(node, "ty", None), "dtype", ""))
        if kind.startswith("float64"):
            known = isinstance(node, (tirx.Var, ir.TensorLoad, tirx.Select)) or _is_known_call(node)
            if kind != "float64" or not known:
                others.append(node)
        for operand in ("a", "value"):
            inner = getattr(node, operand, None)
            if isinstance(node, tirx.Expr) and str(getattr(inner, "ty", "")).startswith("float64"):
                others.append(node)

    tvm_ffi.structural_walk(body, look)
    return not others


def _is_known_call(node: Any) -> bool:
    if not isinstance(node, ir.Call):
        return False
    name = str(getattr(node.op, "name", ""))
    return name == "prim.if_then_else" or (
        name == "tirx.call_pure_extern" and str(node.args[0].value) in (ADD, DIVIDE, WIDE)
    )
