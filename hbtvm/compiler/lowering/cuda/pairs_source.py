"""OpenCL source of the operations on float64 numbers, or on pairs of float32 numbers in their place.

Additions follow Joldes, Muller and Popescu (2017). With u = 2**-24, sums and products of pairs err by a few
u**2 of their results, exponentials of x by about (1 + |x|) * 2**-46, and logarithms by as little. `NARROW`
functions are the driver's for float32. A result that is not finite has a low part of 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from hbtvm.compiler.lowering.cuda import keys_source
from hbtvm.runtime.opencl.pairs import ADD, DIVIDE, EQUAL, PAIRS, WIDE

_PLAIN = {
    "add(a, b)": "((a) + (b))",
    "subtract(a, b)": "((a) - (b))",
    "multiply(a, b)": "((a) * (b))",
    "divide(a, b)": "((a) / (b))",
    "equal(a, b)": "((a) == (b))",
    "less(a, b)": "((a) < (b))",
    "less_equal(a, b)": "((a) <= (b))",
    "minimum(a, b)": "min((double)(a), (double)(b))",
    "maximum(a, b)": "max((double)(a), (double)(b))",
    "wide(a)": "convert_double(a)",
    "narrow(a)": "convert_float(a)",
    "whole(n)": "convert_double(n)",
    "truncated(a)": "convert_long(a)",
    "constant(bits, high, low)": "as_double(bits)",
    "number(bits)": "as_double(bits)",
}
"""Operations of float64 as macros: names with their arguments, and expressions."""

_BASIC = f"""float2 hbtvm_exact(float a, float b) {{
  const float sum = a + b, rest = sum - a;
  return (float2)(sum, (a - (sum - rest)) + (b - rest));
}}
float2 hbtvm_normal(float a, float b) {{
  const float sum = a + b;
  return (float2)(sum, isfinite(sum) ? b - (sum - a) : 0.0f);
}}
float2 {ADD}(float2 a, float2 b) {{
  if (!isfinite(a.x + b.x)) return (float2)(a.x + b.x, 0.0f);
  const float2 high = hbtvm_exact(a.x, b.x), low = hbtvm_exact(a.y, b.y);
  const float2 sum = hbtvm_normal(high.x, high.y + low.x);
  return hbtvm_normal(sum.x, low.y + sum.y);
}}
float2 {DIVIDE}(float2 a, float2 b) {{
  const float first = a.x / b.x, product = first * b.x;
  if (!isfinite(first) || !isfinite(a.x) || !isfinite(b.x)) return (float2)(first, 0.0f);
  const float rest = ((a.x - product) - fma(first, b.x, -product)) + (a.y - first * b.y);
  return hbtvm_normal(first, rest / b.x);
}}
bool {EQUAL}(float2 a, float2 b) {{ return a.x == b.x && a.y == b.y; }}
float2 {WIDE}(float a) {{ return (float2)(a, 0.0f); }}
"""

_ARITHMETIC = """#define hbtvm_constant(bits, high, low) ((float2)(as_float(high), as_float(low)))
float2 hbtvm_subtract(float2 a, float2 b) { return hbtvm_add(a, -b); }
float2 hbtvm_multiply(float2 a, float2 b) {
  const float product = a.x * b.x;
  if (!isfinite(product)) return (float2)(product, 0.0f);
  return hbtvm_normal(product, fma(a.x, b.x, -product) + (a.x * b.y + a.y * b.x));
}
bool hbtvm_less(float2 a, float2 b) { return a.x < b.x || (a.x == b.x && a.y < b.y); }
bool hbtvm_less_equal(float2 a, float2 b) { return a.x < b.x || (a.x == b.x && a.y <= b.y); }
float2 hbtvm_minimum(float2 a, float2 b) { return hbtvm_less(b, a) ? b : a; }
float2 hbtvm_maximum(float2 a, float2 b) { return hbtvm_less(a, b) ? b : a; }
float hbtvm_narrow(float2 a) { return a.x; }
float2 hbtvm_number(long bits) {  // of float64's bits
  const long magnitude = bits & 0x7fffffffffffffffL, exponent = magnitude >> 52;
  const long rest = magnitude & 0xfffffffffffffL, digits = exponent ? rest | 0x10000000000000L : rest;
  const float sign = bits < 0 ? -1.0f : 1.0f, rounded = (float)digits;
  if (exponent == 0x7ff) return (float2)(rest ? NAN : sign * INFINITY, 0.0f);
  const int last = (int)max(exponent, 1L) - 1075;
  const float high = ldexp(rounded, last), low = ldexp((float)(digits - (long)rounded), last);
  return sign * (float2)(high, isinf(high) ? 0.0f : low);
}
float2 hbtvm_whole(long n) { return (float2)((float)n, (float)(n - (long)(float)n)); }
float2 hbtvm_floor(float2 a) {
  const float whole = floor(a.x);
  return whole == a.x ? hbtvm_normal(whole, floor(a.y)) : (float2)(whole, 0.0f);
}
float2 hbtvm_ceil(float2 a) { return -hbtvm_floor(-a); }
float2 hbtvm_trunc(float2 a) { return a.x < 0 ? hbtvm_ceil(a) : hbtvm_floor(a); }
long hbtvm_truncated(float2 a) { a = hbtvm_trunc(a); return (long)a.x + (long)a.y; }
float2 hbtvm_rint(float2 a) {
  if (fabs(a.x - trunc(a.x)) == 0.5f && a.y != 0) return (float2)(a.y > 0 ? ceil(a.x) : floor(a.x), 0.0f);
  return rint(a.x) == a.x ? hbtvm_normal(a.x, rint(a.y)) : (float2)(rint(a.x), 0.0f);
}
float2 hbtvm_fabs(float2 a) { return a.x < 0 ? -a : (float2)(fabs(a.x), a.y); }
float2 hbtvm_sqrt(float2 a) {
  const float root = sqrt(a.x);
  if (!(root > 0) || isinf(root)) return (float2)(root, 0.0f);
  const float2 r = (float2)(root, 0.0f);
  return hbtvm_normal(root, hbtvm_subtract(a, hbtvm_multiply(r, r)).x / (2 * root));
}
"""

_FUNCTIONS = """#define HBTVM_ONE ((float2)(1.0f, 0.0f))
#define HBTVM_LN2 ((float2)(0x1.62e430p-1f, -0x1.05c610p-29f))
#define HBTVM_LN10 ((float2)(0x1.26bb1cp+1f, -0x1.12aabap-25f))
float2 hbtvm_series(float2 r) {  // (exp(r) - 1) / r, for |r| < 0.5
  float2 sum = HBTVM_ONE;
  for (int n = 13; n > 1; --n)
    sum = hbtvm_add(HBTVM_ONE, hbtvm_divide(hbtvm_multiply(r, sum), (float2)(n, 0.0f)));
  return sum;
}
float2 hbtvm_exp(float2 a) {
  if (!(fabs(a.x) < 87.0f)) return (float2)(exp(a.x), 0.0f);
  const float power = rint(a.x * 1.44269504f);
  const float2 r = hbtvm_subtract(a, hbtvm_multiply((float2)(power, 0.0f), HBTVM_LN2));
  return ldexp(hbtvm_add(HBTVM_ONE, hbtvm_multiply(r, hbtvm_series(r))), (int)power);
}
float2 hbtvm_expm1(float2 a) {
  if (fabs(a.x) < 0.35f) return hbtvm_multiply(a, hbtvm_series(a));
  return hbtvm_subtract(hbtvm_exp(a), HBTVM_ONE);
}
float2 hbtvm_log1p(float2 a) {
  const float2 first = (float2)(log1p(a.x), 0.0f);
  if (!isfinite(first.x)) return first;
  return hbtvm_add(first, hbtvm_divide(hbtvm_subtract(a, hbtvm_expm1(first)), hbtvm_exp(first)));
}
float2 hbtvm_log(float2 a) {
  const float2 rest = hbtvm_subtract(a, HBTVM_ONE);
  if (fabs(rest.x) < 0.25f) return hbtvm_log1p(rest);
  const float2 first = (float2)(log(a.x), 0.0f);
  if (!isfinite(first.x)) return first;
  return hbtvm_add(first, hbtvm_subtract(hbtvm_multiply(a, hbtvm_exp(-first)), HBTVM_ONE));
}
float2 hbtvm_exp2(float2 a) { return hbtvm_exp(hbtvm_multiply(a, HBTVM_LN2)); }
float2 hbtvm_log2(float2 a) { return hbtvm_divide(hbtvm_log(a), HBTVM_LN2); }
float2 hbtvm_log10(float2 a) { return hbtvm_divide(hbtvm_log(a), HBTVM_LN10); }
float2 hbtvm_tanh(float2 a) {
  if (fabs(a.x) > 20.0f) return (float2)(copysign(1.0f, a.x), 0.0f);
  const float2 m = hbtvm_expm1(2.0f * a);
  return hbtvm_divide(m, hbtvm_add(m, 2.0f * HBTVM_ONE));
}
float2 hbtvm_sinh(float2 a) {
  const float2 m = hbtvm_expm1(a);
  if (!isfinite(m.x)) return (float2)(sinh(a.x), 0.0f);
  return 0.5f * hbtvm_add(m, hbtvm_divide(m, hbtvm_add(m, HBTVM_ONE)));
}
float2 hbtvm_cosh(float2 a) {
  const float2 e = hbtvm_exp(a);
  return 0.5f * hbtvm_add(e, hbtvm_divide(HBTVM_ONE, e));
}
float2 hbtvm_cbrt(float2 a) {
  const float root = cbrt(a.x);
  if (root == 0 || !isfinite(root)) return (float2)(root, 0.0f);
  const float2 r = (float2)(root, 0.0f);
  return hbtvm_normal(
    root, hbtvm_subtract(a, hbtvm_multiply(r, hbtvm_multiply(r, r))).x / (3 * root * root));
}
float2 hbtvm_pow(float2 a, float2 b) {
  const float power = pow(a.x, b.x);
  if (a.x * power == 0 || !isfinite(a.x) || !isfinite(b.x) || !isfinite(power)) return (float2)(power, 0.0f);
  const float2 found = hbtvm_exp(hbtvm_multiply(b, hbtvm_log(hbtvm_fabs(a))));
  return power < 0 ? -found : found;
}
"""

NARROW = ("sin", "cos", "tan", "asin", "atan", "asinh", "atanh")
"""Functions of float32 alone."""


def _defined(source: str) -> set[str]:
    return set(re.findall(r"^float2 hbtvm_(\w+)\(", source, re.MULTILINE))


FUNCTIONS = frozenset(
    {*NARROW, *_defined(_ARITHMETIC + _FUNCTIONS)} - {name.split("(")[0] for name in _PLAIN}
)
"""Functions of numbers that source can call, by OpenCL's names."""


def _macros(meanings: Iterable[tuple[str, str]]) -> str:
    return "".join(f"#define hbtvm_{name} {meaning}\n" for name, meaning in meanings)


_FLOAT64 = f"""#ifdef cl_khr_fp64
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#endif
{_macros(_PLAIN.items())}"""


def operations(source: str, paired: bool) -> str:
    """Return the operations that a kernel's source calls, its first lines.

    `paired`: whether they are those of pairs where the driver compiles the source with the macro `PAIRS`.
    """
    if not paired:
        return _FLOAT64
    keyed = "hbtvm_key_" in source
    called = FUNCTIONS & set(re.findall(r"hbtvm_(\w+)\(", source))
    narrow = sorted(called.intersection(NARROW))
    parts = [
        _BASIC,
        _ARITHMETIC,
        keys_source.KEYS if keyed else "",
        _FUNCTIONS if called & _defined(_FUNCTIONS) else "",
        *(f"float2 hbtvm_{name}(float2 a) {{ return (float2)({name}(a.x), 0.0f); }}\n" for name in narrow),
    ]
    return (
        f"#ifdef {PAIRS}\n#pragma OPENCL FP_CONTRACT OFF\n#define double float2\n{''.join(parts)}"
        f"#else\n{_FLOAT64}{_macros((name, name) for name in sorted(called))}"
        f"{keys_source.BITS if keyed else ''}#endif\n"
    )
