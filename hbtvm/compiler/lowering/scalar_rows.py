"""Keep walks of rows scalar, and prefetch what the next rows and trees read.

LLVM would walk several rows in vectors, whose loads of nodes are scalar all the same, and whose lanes do not
fit the registers. It vectorizes no loop that prefetches. Hardware foresees neither the columns that a row
reads nor the nodes and leaves of the next trees, of which each row fetches a share. Prefetches never fault,
so the last rows and trees need no care.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm_ffi
from tvm import ir, sym, tirx

from hbtvm.compiler.lowering.indices import index_at
from hbtvm.schedules.cpu.ranked_rows import SCALARS
from hbtvm.schedules.statements import const, prefetch
from hbtvm.strategies.intrinsics.walk import END_OF

_AHEAD = 4  # rows whose ranks are prefetched
_LINE = 64  # bytes of a cache line


def keep_scalar(loop: Any) -> Any:
    """Return an annotated loop over rows with prefetches.

    The annotation is the number of trees of a tile, of groups, and of a tree's nodes and leaf values.
    """
    calls: list[Any] = []
    loads: list[Any] = []
    inner: list[Any] = [loop.loop_var]
    tvm_ffi.structural_walk(loop.body, (ir.Call, lambda call: calls.append(call)))
    tvm_ffi.structural_walk(loop.body, (ir.TensorLoad, lambda load: loads.append(load)))
    tvm_ffi.structural_walk(loop.body, (tirx.For, lambda nested: inner.append(nested.loop_var)))
    word, _, row, *_ = next(call.args for call in calls if call.op == ir.Op.get(END_OF))
    value = next(load for load in loads if load.source.name.split("_")[0] == "value")
    trees, groups, *sizes = (int(number) for number in loop.annotations[SCALARS])

    def at(load: Any, number: int = 0) -> Any:
        """Return where the entries of a row's first tree begin, for the row of this number."""
        (index,) = load.indices
        first = tvm_ffi.structural_map(index, (ir.Call, _first_leaf))
        return index_at(first, dict.fromkeys(inner, 0) | {loop.loop_var: number})

    step = int(sym.Analyzer().simplify(at(row, 1) - at(row)))
    here = loop.loop_var.astype("int64")
    fetched = _lines(row.source, at(row) + (here + _AHEAD) * step, step)
    for load, size in zip((word, value), sizes, strict=True):
        share = -(-trees * size // int(loop.extent))
        lines = _lines(load.source, at(load) + groups * trees * size + here * share, share)
        # A row reads no more than a few lines of each tree.
        fetched += lines if len(lines) <= trees else []
    body = tirx.SeqStmt([*fetched, loop.body])
    return tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, body, loop.thread_binding, {})


def _first_leaf(call: Any) -> Any:
    return tirx.const(0, "int32") if call.op == ir.Op.get(END_OF) else call


def _lines(buffer: Any, start: Any, count: int) -> list[Any]:
    """Return prefetches of the lines of `count` entries from `start` on."""
    step = _LINE // np.dtype(str(buffer.dtype)).itemsize
    return [prefetch(tirx.BufferLoad(buffer, [start + const(k)]), 3) for k in range(0, count, step)]
