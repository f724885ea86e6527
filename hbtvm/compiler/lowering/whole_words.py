"""Load words of 64 bits whole on CUDA.

Where a node's halves are used apart, its load stands in several expressions, and nvcc makes of each a load of
32 bits. A walk's load touches a line for nearly every row of a warp, so each takes as long as all of it.
Loads by a function of inline assembly are neither split nor repeated.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import ir, tirx

_NAME = "hbtvm_word"

SOURCE = f"""#include <cstdint>
static __device__ __forceinline__ int64_t {_NAME}(const int64_t *at) {{
#ifdef __CUDA_ARCH__
  int64_t word;
  asm("ld.global.nc.b64 %0, [%1];" : "=l"(word) : "l"(at));
  return word;
#else
  return *at;
#endif
}}
"""
"""The function; what it reads is constant while a kernel runs, as all tables are."""


def load_words_whole(function: Any) -> Any:
    """Return a lowered function in which words of its int64 arrays are loaded by `SOURCE`'s function."""

    def replaced(load: Any) -> Any:
        own = any(load.source.same_as(one) for one in function.params)
        if not own or str(load.ty.dtype) != "int64":
            return load
        return tirx.call_pure_extern("int64", _NAME, tirx.address_of(load))

    return function.with_body(tvm_ffi.structural_map(function.body, (ir.TensorLoad, replaced)))


def head(source: str) -> str:
    """Return what has to stand before CUDA source."""
    return SOURCE if f"{_NAME}(" in source else ""
