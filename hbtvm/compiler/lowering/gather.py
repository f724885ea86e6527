"""The gather kernel of staged models: it copies columns of rows and stages to a kernel's rows."""

from __future__ import annotations

from hbtvm.runtime.gpu.launch import GATHER, GATHER_THREADS


def gather_source() -> str:
    """Return the CUDA source of the kernel that gathers a stage's rows.

    The table ``columns``, int32 of shape (``reads``, 3), has each column's index in its source, the number of
    columns of all stages before that source, and the width of the source, or 0 for the rows. Stages' columns
    are concatenated, each with room for ``stride`` rows. Rows from ``count`` to ``padded`` become zeros, so
    that a kernel reads whole tiles of defined numbers.
    """
    return f"""
extern "C" __global__ void __launch_bounds__({GATHER_THREADS}) {GATHER}(
    const void* rows, const double* made, void* out, const int* columns, int64_t single, int64_t narrow,
    int64_t features, int64_t stride, int64_t reads, int64_t count, int64_t padded) {{
  const int64_t at = (int64_t)blockIdx.x * {GATHER_THREADS} + threadIdx.x;
  if (at >= padded * reads) return;
  const int64_t row = at / reads;
  const int* from = columns + 3 * (at % reads);
  double value = 0.0;
  if (row < count) {{
    if (from[2]) value = made[from[1] * stride + row * from[2] + from[0]];
    else if (single) value = ((const float*)rows)[row * features + from[0]];
    else value = ((const double*)rows)[row * features + from[0]];
  }}
  if (narrow) ((float*)out)[at] = (float)value;
  else ((double*)out)[at] = value;
}}
"""
