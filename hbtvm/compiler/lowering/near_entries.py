"""Read what walks look up on CUDA from where a tree's tables begin.

The index of a table's entry has two parts: where the tree's own part of the table begins, which is the same
for a whole walk and has 64 bits, and a node's number, which the walk has just computed. Where their sum is
written as an index, it is computed anew at each level, in two halves, and then scaled in two. A function of
a pointer and a number of 32 bits keeps the first part in the pointer, so that one multiplication and addition
makes an entry's address.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator
from typing import Any

import tvm_ffi
from tvm import ir, tirx

NAME = "hbtvm_entry"

SOURCE = f"""#include <cstdint>
static __device__ __forceinline__ int {NAME}(const int *first, int number) {{
#ifdef __CUDA_ARCH__
  uint64_t begin;  // of which the compiler does not know that it is a sum
  asm("mov.b64 %0, %1;" : "=l"(begin) : "l"(first));
  return __ldg((const int *)begin + number);
#else
  return first[number];
#endif
}}
"""
"""The function; what it reads is constant while a kernel runs, as all tables are."""


def read_near(function: Any) -> Any:
    """Return a lowered function whose reads of its arrays at computed places are by `SOURCE`'s function."""

    def replaced(load: Any) -> Any:
        # (Words of 64 bits gain nothing, and of leaves a walk reads one.)
        is_word = str(load.ty.dtype) == "int32"
        if load.source.scope() != "global" or len(load.indices) != 1 or not is_word:
            return load
        terms = list(_terms(load.indices[0]))
        near = [one for one in terms if _is_computed(one)]
        far = [one for one in terms if not _is_computed(one)]
        if len(near) != 1 or not far:
            return load
        first = tirx.address_of(tirx.BufferLoad(load.source, [functools.reduce(operator.add, far)]))
        return tirx.call_pure_extern("int32", NAME, first, near[0].value)

    return function.with_body(tvm_ffi.structural_map(function.body, (ir.TensorLoad, replaced)))


def _terms(index: Any) -> Iterator[Any]:
    """Yield what is added up in an index."""
    if isinstance(index, tirx.Add):
        yield from _terms(index.a)
        yield from _terms(index.b)
    else:
        yield index


def _is_computed(term: Any) -> bool:
    """Return whether a term of an index is a number of 32 bits that a thread has in a register."""
    if not isinstance(term, tirx.Cast) or str(term.value.ty.dtype) != "int32":
        return False
    read: list[str] = []
    tvm_ffi.structural_walk(term, (ir.TensorLoad, lambda load: read.append(load.source.scope())))
    return set(read) == {"local"}
