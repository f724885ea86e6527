"""Read what kernels look up on CUDA from where a tree's tables, or a column of rows, begin.

The index of a table's entry has two parts: where the tree's own part of the table begins, which is the same
for a whole walk and has 64 bits, and a node's number, which the walk has just computed. Where their sum is
written as an index, it is computed anew at each level, in two halves, and then scaled in two. A function of
a pointer and a number of 32 bits keeps the first part in the pointer, so that one multiplication and addition
makes an entry's address. The same holds where a thread looks up which column it reads, of several rows: where
the column begins is the first part, and the number is that of a row, at most the last one's.
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
template <typename T> static __device__ __forceinline__ T {NAME}(const T *first, int row, int64_t size) {{
#ifdef __CUDA_ARCH__
  uint64_t begin;
  asm("mov.b64 %0, %1;" : "=l"(begin) : "l"(first));
  return __ldg((const T *)begin + row * size);
#else
  return first[row * size];
#endif
}}
"""
"""The functions; what they read is constant while a kernel runs, as all tables and rows are."""


def read_near(function: Any) -> Any:
    """Return a lowered function whose reads of its arrays at computed places are by `SOURCE`'s functions."""

    def replaced(load: Any) -> Any:
        if load.source.scope() != "global" or len(load.indices) != 1:
            return load
        dtype, terms = str(load.ty.dtype), list(_terms(load.indices[0]))
        # (Words of 64 bits gain nothing, and of leaves a walk reads one.)
        numbers = [_entry(term) if dtype == "int32" else _row(term) for term in terms]
        near = [number for number in numbers if number]
        far = [term for term, number in zip(terms, numbers, strict=True) if not number]
        if len(near) != 1 or not far or (dtype != "int32" and not any("global" in _read(one) for one in far)):
            return load
        first = tirx.address_of(tirx.BufferLoad(load.source, [functools.reduce(operator.add, far)]))
        return tirx.call_pure_extern(dtype, NAME, first, *near[0])

    return function.with_body(tvm_ffi.structural_map(function.body, (ir.TensorLoad, replaced)))


def _terms(index: Any) -> Iterator[Any]:
    """Yield what is added up in an index."""
    if isinstance(index, tirx.Add):
        yield from _terms(index.a)
        yield from _terms(index.b)
    else:
        yield index


def _entry(term: Any) -> tuple[Any, ...]:
    """Return the number of 32 bits, in a thread's register, that a term of an index is; empty for others."""
    if not isinstance(term, tirx.Cast) or str(term.value.ty.dtype) != "int32":
        return ()
    return (term.value,) if _read(term) == {"local"} else ()


def _row(term: Any) -> tuple[Any, ...]:
    """Return the number of a row that all threads read at a time, and a row's size, whose product a term is;
    empty for others.

    Rows with bounds have such terms (see `hbtvm.compiler.lowering.cuda.row_bounds`).
    """
    if not isinstance(term, tirx.Mul) or not isinstance(term.a, tirx.Cast):
        return ()
    number, size = term.a.value, term.b
    if not isinstance(number, tirx.Min) or not isinstance(size, tirx.IntImm):
        return ()
    names: set[str] = set()
    tvm_ffi.structural_walk(number, (tirx.Var, lambda var: names.add(str(var.name))))
    own = any(name.startswith("threadIdx") for name in names)
    return () if own or str(number.ty.dtype) != "int32" else (number, size)


def _read(term: Any) -> set[str]:
    """Return the scopes of what a term of an index reads."""
    scopes: set[str] = set()
    tvm_ffi.structural_walk(term, (ir.TensorLoad, lambda load: scopes.add(load.source.scope())))
    return scopes
