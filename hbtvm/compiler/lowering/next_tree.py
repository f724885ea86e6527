"""Prefetch the next tree while rows walk this one.

Walks of large trees read few neighbouring lines, so no hardware prefetcher foresees them, and a tile of
rows waits for memory at each tree's lower levels. A loop over blocks of rows that a schedule annotates
(`NEXT_TREE`) prefetches a share of the next tree's slots in each block: after the last block, the tree is in
the second-level cache. Prefetches never fault, so the end of the table needs no care.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm_ffi
from tvm import ir, tirx

from hbtvm.schedules.cpu.traversal import NEXT_TREE
from hbtvm.schedules.statements import const, prefetch, serial

_LINE = 64  # bytes of a cache line
_LINES_PER_ROW = 12
"""Most lines to prefetch for each row: beyond, a block of few rows reads less of the tree than that."""


def prefetch_next(loop: Any) -> Any:
    """Return an annotated loop over blocks of rows that prefetches the slots of the next tree.

    The loop's annotation is the number of rows of a block. Its body reads ``root[tree]``, a slot, and
    entries of ``node`` from ``root[tree] * width`` on. The next tree is as long as this one, about.
    """
    loads: list[Any] = []
    tvm_ffi.structural_walk(loop.body, (ir.TensorLoad, lambda load: loads.append(load)))
    root, node = (
        next(load for load in loads if load.source.name.split("_")[0] == name) for name in ("root", "node")
    )
    (tree,) = root.indices
    (start,) = node.indices
    blocks, rows = int(loop.extent), int(loop.annotations[NEXT_TREE])
    per_line = _LINE // np.dtype(str(node.source.dtype)).itemsize
    following = tirx.min(tree + 1, root.source.shape[0].astype(tree.ty.dtype) - 1)

    def of_tree(variable: Any) -> Any:
        return following if variable.same_as(tree) else variable

    here, there, lines = (tirx.Var(name, "int64") for name in ("here", "there", "lines"))
    share = tirx.floordiv(there - here, const(blocks * per_line)) + const(1)

    def line(number: Any) -> Any:
        at = there + (loop.loop_var.astype("int64") * lines + number) * const(per_line)
        return prefetch(tirx.BufferLoad(node.source, [at]), 2)

    fetch = tirx.SeqStmt(
        [
            tirx.Bind(here, start),
            tirx.Bind(there, tvm_ffi.structural_map(start, (tirx.Var, of_tree))),
            tirx.Bind(lines, tirx.min(share, const(rows * _LINES_PER_ROW))),
            serial("line", lines, line),
        ]
    )
    return tirx.For(
        loop.loop_var,
        loop.min,
        loop.extent,
        loop.kind,
        tirx.SeqStmt([fetch, loop.body]),
        loop.thread_binding,
        {},
    )
