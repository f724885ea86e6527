"""Keep walks of rows scalar, and prefetch the ranks of rows that follow.

LLVM would walk several rows in vectors, whose loads of nodes are scalar all the same, and whose lanes do not
fit the registers. It vectorizes no loop that prefetches. Prefetches never fault, so the last rows need no
care.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import ir, tirx

from hbtvm.schedules.cpu.ranked_rows import SCALARS
from hbtvm.schedules.statements import prefetch
from hbtvm.strategies.intrinsics.walk import END_OF


def keep_scalar(loop: Any) -> Any:
    """Return an annotated loop over rows that prefetches the first ranks of the row so many rows ahead."""
    calls: list[Any] = []
    tvm_ffi.structural_walk(loop.body, (ir.Call, lambda call: calls.append(call)))
    row = next(call.args[2] for call in calls if call.op == ir.Op.get(END_OF))
    ahead = loop.loop_var + tirx.const(int(loop.annotations[SCALARS]), loop.loop_var.ty.dtype)

    def of_row(variable: Any) -> Any:
        return ahead if variable.same_as(loop.loop_var) else variable

    (at,) = row.indices
    there = tirx.BufferLoad(row.source, [tvm_ffi.structural_map(at, (tirx.Var, of_row))])
    body = tirx.SeqStmt([prefetch(there, 3), loop.body])
    return tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, body, loop.thread_binding, {})
