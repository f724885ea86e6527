"""Grid-stride loops: loops over tiles of rows that a fixed number of blocks share.

If a schedule annotates such a loop (`hbtvm.schedules.cuda.steps.GRID_STRIDED`), block b of n runs iterations
b, b + n, b + 2 * n, and so on. All threads of a block run equally many iterations, so the body may have
barriers.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from hbtvm.schedules.cuda.steps import GRID_STRIDED

_AXIS = "blockIdx.x"


def grid_stride(loop: Any) -> Any:
    """Return an annotated loop of a lowered function as a grid-stride loop, bound to blocks."""
    kind = str(loop.loop_var.ty.dtype)
    blocks = tirx.const(int(loop.annotations[GRID_STRIDED]), kind)
    block, step = tirx.Var(_AXIS, kind), tirx.Var("step", kind)
    # The dividend is never negative, so truncating division is right.
    steps = tirx.truncdiv(loop.extent + (blocks - 1) - block, blocks)
    at = {loop.loop_var: step * blocks + block}
    body = tvm_ffi.structural_map(loop.body, (tirx.Var, lambda variable: at.get(variable, variable)))
    strided = tirx.For(step, tirx.const(0, kind), steps, tirx.ForKind.SERIAL, body)
    thread = tirx.IterVar(tvm.ir.Range(tirx.const(0, kind), blocks), block, tirx.IterVar.ThreadIndex, _AXIS)
    return tirx.AttrStmt(thread, "thread_extent", blocks, strided)
