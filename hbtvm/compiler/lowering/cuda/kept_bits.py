"""Apply masks of failed tests by a predicated AND on CUDA.

``bits & (x <= t ? -1 : mask)`` becomes a comparison, a selection and an AND, all on the unit that limits
kernels of many tests. A comparison to a predicate, and an AND that the predicate skips, take one instruction
less; the compiler does not find this.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import ir, tirx

NAME = "hbtvm_keep"

_WORDS = {"int32": "r", "int64": "l"}
_NUMBERS = {"float32": "f", "float64": "d"}  # letters of inline assembly by type


def _function(word: str, number: str) -> str:
    compared, bits = _NUMBERS[number], _WORDS[word]
    c_type = "float" if number == "float32" else "double"
    test = f"setp.gtu.f{number.removeprefix('float')} fails, %1, %2;"
    return f"""static __device__ __forceinline__ {word}_t {NAME}(
    {word}_t bits, {word}_t mask, {c_type} x, {c_type} t) {{
#ifdef __CUDA_ARCH__
  // Greater, or not a number: the test fails.
  asm("{{ .reg .pred fails; {test} @fails and.b{word.removeprefix("int")} %0, %0, %3; }}"
      : "+{bits}"(bits) : "{compared}"(x), "{compared}"(t), "{bits}"(mask));
  return bits;
#else
  return x <= t ? bits : bits & mask;
#endif
}}
"""


SOURCE = "#include <cstdint>\n" + "".join(_function(word, number) for word in _WORDS for number in _NUMBERS)
"""A function for each pair of types."""


def keep_bits(function: Any) -> Any:
    """Return a lowered function that applies masks of failed tests by `SOURCE`'s functions."""

    def replaced(both: Any) -> Any:
        chosen, word = both.b, str(both.ty.dtype)
        if not isinstance(chosen, tirx.Select) or not isinstance(chosen.condition, tirx.LE):
            return both
        test = chosen.condition
        kept = isinstance(chosen.true_value, tirx.IntImm) and int(chosen.true_value) == -1
        if (
            not kept
            or not _of_several_rows(both.a)
            or word not in _WORDS
            or str(test.a.ty.dtype) not in _NUMBERS
        ):
            return both
        return tirx.call_pure_extern(word, NAME, both.a, chosen.false_value, test.a, test.b)

    return function.with_body(tvm_ffi.structural_map(function.body, (tirx.BitwiseAnd, replaced)))


def _of_several_rows(bits: Any) -> bool:
    """Return whether a thread has these bits of several rows; single-row threads gain nothing."""
    return isinstance(bits, ir.TensorLoad) and int(bits.source.ty.shape[0]) > 1
