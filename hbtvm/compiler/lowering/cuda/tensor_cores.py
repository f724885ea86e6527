"""Matrix products on tensor cores.

If a schedule annotates the loops over a tile of 16 x 16 sums (`TENSOR`), they become a call that a whole warp
executes: CUDA's matrix functions (``nvcuda::wmma``) on tables in shared memory. TVM's `Schedule.tensorize`
would need a description of each shape and layout.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import ir, tirx
from tvm.backend.cuda.op import cuda_func_call

from hbtvm.schedules.cuda.gemm import TENSOR

_TYPES = {"int8": ("signed char", "int"), "float16": ("half", "float")}

_SOURCE = """
#include <mma.h>
__forceinline__ __device__ void {name}({sum}* sums, {entry}* one, {entry}* other, int depth, int width) {{
  using namespace nvcuda::wmma;
  fragment<accumulator, 16, 16, 16, {sum}> total;
  fill_fragment(total, {sum}(0));
  for (int k = 0; k < depth; k += 16) {{
    fragment<matrix_a, 16, 16, 16, {entry}, row_major> left;
    fragment<matrix_b, 16, 16, 16, {entry}, row_major> right;
    load_matrix_sync(left, one + k, depth);
    load_matrix_sync(right, other + k * width, width);
    mma_sync(total, left, right, total);
  }}
  store_matrix_sync(sums, total, width, mem_row_major);
}}
"""


def multiply(loop: Any) -> Any:
    """Return the call that replaces an annotated loop nest of a lowered function.

    The nest is ``for i < 16: for j < 16: sums[i, j] = 0; for k: sums[i, j] += left[i, k] * right[k, j]``,
    all three row-major, `left` without padding; the annotation is the row length of `sums` and `right`.
    """
    inner = loop.body
    stores: list[Any] = []
    tvm_ffi.structural_walk(inner.body, (tirx.BufferStore, lambda store: stores.append(store)))
    depths: list[Any] = []
    tvm_ffi.structural_walk(inner.body, (tirx.For, lambda nested: depths.append(nested)))
    update, depth = stores[-1], depths[-1]
    loads: list[Any] = []
    tvm_ffi.structural_walk(update.value, (ir.TensorLoad, lambda load: loads.append(load)))
    first = {v: tirx.const(0, str(v.ty.dtype)) for v in (loop.loop_var, inner.loop_var, depth.loop_var)}

    def start(buffer: Any, index: Any, mode: str) -> Any:
        offset = tvm_ffi.structural_map(index, (tirx.Var, lambda var: first.get(var, var)))
        return buffer.access_ptr(mode, offset=offset)

    _, left, right = loads
    dtype = str(left.source.dtype)
    entry, total = _TYPES[dtype]
    name = f"multiply_{dtype}"
    call = cuda_func_call(
        name,
        start(update.buffer, update.indices[0], "w"),
        start(left.source, left.indices[0], "r"),
        start(right.source, right.indices[0], "r"),
        tirx.const(int(depth.extent), "int32"),
        tirx.const(int(loop.annotations[TENSOR]), "int32"),
        source_code=_SOURCE.format(name=name, entry=entry, sum=total),
    )
    return tirx.Evaluate(call)
