"""The gather kernel of staged models: it copies columns of rows and stages to a kernel's rows."""

from __future__ import annotations

from hbtvm.compiler.lowering.cuda.score_epilogue import words
from hbtvm.runtime.gpu.launch import GATHER, GATHER_THREADS
from hbtvm.runtime.opencl.pairs import BITS


def gather_source(kind: str = "cuda") -> str:
    """Return the source of the kernel that gathers a stage's rows.

    The table ``columns``, int32 of shape (``reads``, 3), has each column's index in its source, the number of
    columns of all stages before that source, and the width of the source, or 0 for the rows. Stages' columns
    are concatenated, each with room for ``stride`` rows. Rows from ``count`` to ``padded`` become zeros, so
    that a kernel reads whole tiles of defined numbers. ``single`` is 1 for float32 rows. In OpenCL it is
    `BITS` to make numbers of float64 rows' bits, which differ where numbers are pairs.
    """
    kernel, thread, long, memory = words(kind, GATHER_THREADS)
    # OpenCL's numbers may be pairs.
    opencl = kind == "opencl"
    wide, narrow = ("hbtvm_wide", "hbtvm_narrow") if opencl else ("(double)", "(float)")
    bits = "((__global const long*)rows)[row * features + from[0]]"
    of_bits = f"else if (single == {BITS}) value = hbtvm_number({bits});\n    " if opencl else ""
    return f"""
{kernel} {GATHER}(
    {memory}const void* rows, {memory}const double* made, {memory}void* out, {memory}const int* columns,
    {long} single, {long} narrow, {long} features, {long} stride, {long} reads, {long} count,
    {long} padded) {{
  const {long} at = {thread};
  if (at >= padded * reads) return;
  const {long} row = at / reads;
  {memory}const int* from = columns + 3 * (at % reads);
  double value = {wide}(0.0f);
  if (row < count) {{
    if (from[2]) value = made[from[1] * stride + row * from[2] + from[0]];
    {of_bits}else if (single) value = {wide}((({memory}const float*)rows)[row * features + from[0]]);
    else value = (({memory}const double*)rows)[row * features + from[0]];
  }}
  if (narrow) (({memory}float*)out)[at] = {narrow}(value);
  else (({memory}double*)out)[at] = value;
}}
"""
