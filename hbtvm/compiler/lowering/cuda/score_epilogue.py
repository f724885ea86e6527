"""The score epilogue of GPU kernels: add the partial sums of scores, and lay scores out by rows.

If several blocks share a forest's trees (knob ``tree_blocks``), each stores a partial sum of a score. The
epilogue adds them in float64, in a fixed order.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import tvm
from tvm import te
from tvm.s_tir import Schedule

from hbtvm.runtime.gpu.launch import EPILOGUE, EPILOGUE_THREADS
from hbtvm.runtime.opencl.pairs import ADD, DIVIDE


class Words(NamedTuple):
    """What CUDA and OpenCL spell differently.

    `kernel`, `thread`, `long`, `memory`: the start of a kernel's definition, a thread's number, a 64-bit
        integer, and the qualifier of pointers to a device's memory.
    """

    kernel: str
    thread: str
    long: str
    memory: str


def words(kind: str, threads: int) -> Words:
    """Return the words of a kind of target, for kernels with blocks of `threads` threads."""
    if kind == "opencl":
        return Words("__kernel void", "(long)get_global_id(0)", "long", "__global ")
    bounds = f'extern "C" __global__ void __launch_bounds__({threads})'
    return Words(bounds, f"(int64_t)blockIdx.x * {threads} + threadIdx.x", "int64_t", "")


def epilogue_source(parts: int, kind: str = "cuda") -> str:
    """Return the source of the kernel from scores, (tiles, parts, O, R), to raw scores by rows, (N, O).

    Every module in a package contains this kernel.
    """
    kernel, thread, long, memory = words(kind, EPILOGUE_THREADS)
    # OpenCL's numbers may be pairs.
    add, divide = (
        (f"{ADD}({{}}, {{}})".format, f"{DIVIDE}({{}}, {{}})".format)
        if kind == "opencl"
        else ("{} + {}".format, "{} / {}".format)
    )
    return f"""
{kernel} {EPILOGUE}(
    {memory}const double* scores, {memory}double* out, {memory}const double* base, double divisor,
    {long} rows, {long} outputs, {long} row_tile) {{
  const {long} at = {thread};
  if (at >= rows * outputs) return;
  const {long} row = at / outputs, output = at % outputs;
  {memory}const double* part =
    scores + (row / row_tile * {parts} * outputs + output) * row_tile + row % row_tile;
  double sum = *part;
  for (int n = 1; n < {parts}; ++n) sum = {add("sum", "part[n * outputs * row_tile]")};
  out[at] = {add(divide("sum", "divisor"), "base[output]")};
}}
"""


def with_epilogue(module: Any, groups: int, parts: int) -> Any:
    """Return a scheduled module with the epilogue as ``finish``, for devices with only TVM's runtime.

    `module`: its function ``main`` makes scores, float64, shape (tiles, parts * G, V, R), or R in two axes.
    `groups`: groups of outputs, G.
    `parts`: partial sums of each score.
    Returns a module whose ``finish(scores, sums)`` makes plain sums by rows, float64, shape (tiles, R, G, V).
    """
    width, *rows = (int(extent) for extent in module["main"].params[-1].ty.shape[2:])
    tiles = te.var("tiles", "int64")
    scores = te.placeholder((tiles, parts * groups, width, *rows), "float64", name="scores")
    part = te.reduce_axis((0, parts), "part")

    def total(i: Any, r: Any, g: Any, v: Any) -> Any:
        row = (r,) if len(rows) == 1 else (r // rows[1], r % rows[1])
        return te.sum(scores(i, part * groups + g, v, *row), axis=part)

    sums = te.compute((tiles, math.prod(rows), groups, width), total, name="sums")
    sch = Schedule(te.create_prim_func([scores, sums]))
    block = sch.get_sblock("sums")
    *axes, _ = sch.get_loops(block)
    blocks, threads = sch.split(sch.fuse(*axes), [None, EPILOGUE_THREADS])
    sch.bind(blocks, "blockIdx.x")
    sch.bind(threads, "threadIdx.x")
    finish = sch.mod["main"].with_attr("global_symbol", "finish")
    return tvm.IRModule({"main": module["main"], "finish": finish})
