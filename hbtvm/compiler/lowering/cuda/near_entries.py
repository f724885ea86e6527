"""Address lookups on CUDA relative to the start of a tree's tables, or of a column of rows.

The index of a table's entry is the sum of the start of the tree's part, a 64-bit number that is constant
during a walk, and a node's 32-bit number, which the walk has just computed. As a plain index, the sum is
computed and scaled at each level in two halves. A function of a pointer and a 32-bit number keeps the start
in the pointer, so that one multiply-add computes an entry's address. The same holds for threads that look up
the column they read of several rows: the column's start is the pointer, and a row is the 32-bit number.
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
"""The functions; tables and rows are constant while a kernel runs."""


def read_near(function: Any) -> Any:
    """Return a lowered function that reads its arrays at computed indices by `SOURCE`'s functions."""

    def replaced(load: Any) -> Any:
        if load.source.scope() != "global" or len(load.indices) != 1:
            return load
        dtype, terms = str(load.ty.dtype), list(_terms(load.indices[0]))
        # (64-bit words gain nothing, and a walk reads a single leaf.)
        numbers = [_entry(term) if dtype == "int32" else _row(term) for term in terms]
        near = [number for number in numbers if number]
        far = [term for term, number in zip(terms, numbers, strict=True) if not number]
        if (
            len(near) != 1
            or not far
            or (dtype != "int32" and not any("global" in _read(load) for load in far))
        ):
            return load
        first = tirx.address_of(tirx.BufferLoad(load.source, [functools.reduce(operator.add, far)]))
        return tirx.call_pure_extern(dtype, NAME, first, *near[0])

    return function.with_body(tvm_ffi.structural_map(function.body, (ir.TensorLoad, replaced)))


def _terms(index: Any) -> Iterator[Any]:
    """Yield the terms of an index's sum."""
    if isinstance(index, tirx.Add):
        yield from _terms(index.a)
        yield from _terms(index.b)
    else:
        yield index


def _entry(term: Any) -> tuple[Any, ...]:
    """Return the 32-bit number in a thread's register that a term of an index is; empty for other terms."""
    if not isinstance(term, tirx.Cast) or str(term.value.ty.dtype) != "int32":
        return ()
    return (term.value,) if _read(term) == {"local"} else ()


def _row(term: Any) -> tuple[Any, ...]:
    """Return the factors of a term: a row that all threads read together, and a row's size; else empty.

    Rows with bounds have such terms (see `hbtvm.compiler.lowering.cuda.row_bounds`).
    """
    if not isinstance(term, tirx.Mul) or not isinstance(term.a, tirx.Cast):
        return ()
    number, size = term.a.value, term.b
    if not isinstance(number, tirx.Min) or not isinstance(size, tirx.IntImm):
        return ()
    names: set[str] = set()
    tvm_ffi.structural_walk(number, (tirx.Var, lambda var: names.add(str(var.name))))
    by_thread = any(name.startswith("threadIdx") for name in names)
    return () if by_thread or str(number.ty.dtype) != "int32" else (number, size)


def _read(term: Any) -> set[str]:
    """Return the scopes of the buffers that a term of an index reads."""
    scopes: set[str] = set()
    tvm_ffi.structural_walk(term, (ir.TensorLoad, lambda load: scopes.add(load.source.scope())))
    return scopes
