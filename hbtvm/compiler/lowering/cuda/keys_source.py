"""OpenCL source of the operations on keys, or on the bits of float64 numbers in their place.

See `hbtvm.runtime.opencl.keys`. A key other than NaN's is, with its sign, the bits of the number's magnitude.
"""

from __future__ import annotations

from hbtvm.runtime.opencl.keys import NAN

_INFINITY, _IMPLIED = "0x7ff0000000000000L", "0x10000000000000L"

BITS = """#define hbtvm_key_of(bits) (bits)
#define hbtvm_key_of2(bits) (bits)
#define hbtvm_key_of4(bits) (bits)
#define hbtvm_key_constant(bits, key) (bits)
#define hbtvm_key_less(a, b) (as_double(a) < as_double(b))
#define hbtvm_key_less_equal(a, b) (as_double(a) <= as_double(b))
#define hbtvm_key_equal(a, b) (as_double(a) == as_double(b))
#define hbtvm_key_negated(a) as_long(-as_double(a))
#define hbtvm_key_whole(n) as_long(convert_double(n))
#define hbtvm_key_truncated(a) convert_long(as_double(a))
"""
"""Operations on the bits of float64 numbers."""


def _key_of(lanes: str) -> str:
    """Return the function from a number's bits to its key, or from those of several numbers."""
    return f"""long{lanes} hbtvm_key_of{lanes}(long{lanes} bits) {{
  const long{lanes} sign = bits >> 63, magnitude = bits & {NAN:#x}L, nan = ({_INFINITY} - magnitude) >> 63;
  return (((magnitude ^ sign) - sign) & ~nan) | (nan & {NAN:#x}L);
}}
"""


KEYS = f"""{"".join(map(_key_of, ("", "2", "4")))}#define hbtvm_key_constant(bits, key) (key)
bool hbtvm_key_less(long a, long b) {{ return a < b && b != {NAN:#x}L; }}
bool hbtvm_key_less_equal(long a, long b) {{ return a <= b && b != {NAN:#x}L; }}
bool hbtvm_key_equal(long a, long b) {{ return a == b && b != {NAN:#x}L; }}
long hbtvm_key_negated(long a) {{ return a == {NAN:#x}L ? a : -a; }}
long hbtvm_key_whole(long n) {{  // a whole number of at most 53 bits
  const long magnitude = n < 0 ? -n : n, top = 63 - (long)clz(magnitude);
  const long key = n == 0 ? 0 : ((top + 1022) << 52) + (magnitude << (52 - (top & 63)));
  return n < 0 ? -key : key;
}}
long hbtvm_key_truncated(long a) {{  // of magnitudes below 2**63, as conversions of float64
  const long magnitude = a < 0 ? -a : a, exponent = (magnitude >> 52) - 1075;
  const long digits = (magnitude & ({_IMPLIED} - 1)) | {_IMPLIED};
  const long whole = exponent < -52 ? 0 : exponent < 0 ? digits >> -exponent : digits << min(exponent, 10L);
  return a < 0 ? -whole : whole;
}}
"""
"""Operations on keys."""
