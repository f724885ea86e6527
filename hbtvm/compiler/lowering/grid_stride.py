"""Loops over tiles of rows that a fixed number of blocks share.

Where a schedule annotates such a loop (`hbtvm.schedules.cuda.GRID_STRIDED`), each block takes every so
many-th iteration. How often it goes round is the same for all threads of a block, so barriers may be inside.
"""

from __future__ import annotations

from typing import Any

import tvm
import tvm_ffi
from tvm import tirx

from hbtvm.schedules.cuda import GRID_STRIDED

_AXIS = "blockIdx.x"


def grid_stride(loop: Any) -> Any:
    """Bind an annotated loop of a lowered function to blocks, of which each strides over iterations."""
    kind = str(loop.loop_var.ty.dtype)
    blocks = tirx.const(int(loop.annotations[GRID_STRIDED]), kind)
    block, turn = tirx.Var(_AXIS, kind), tirx.Var("turn", kind)
    # Never negative, so that dividing is plain.
    turns = tirx.truncdiv(loop.extent + (blocks - 1) - block, blocks)
    at = {loop.loop_var: turn * blocks + block}
    body = tvm_ffi.structural_map(loop.body, (tirx.Var, lambda variable: at.get(variable, variable)))
    strided = tirx.For(turn, tirx.const(0, kind), turns, tirx.ForKind.SERIAL, body)
    thread = tirx.IterVar(tvm.ir.Range(tirx.const(0, kind), blocks), block, tirx.IterVar.ThreadIndex, _AXIS)
    return tirx.AttrStmt(thread, "thread_extent", blocks, strided)
