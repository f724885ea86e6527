"""Prefetch the next trees while rows walk these, and keep scalar walks scalar.

Hardware foresees neither the nodes and leaves of the next trees, of which each row fetches a share, nor the
columns that a scalar walk reads. Prefetches never fault, so the last rows and trees need no care.

LLVM would walk several rows in vectors, whose loads of nodes are scalar all the same, and whose lanes do not
fit the registers. It vectorizes no loop that prefetches.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import tvm_ffi
from tvm import ir, sym, tirx

from hbtvm.compiler.lowering.indices import index_at
from hbtvm.schedules.statements import const, prefetch, sequence
from hbtvm.strategies.intrinsics.subtree import LEVELS, TESTS_OF, record_size
from hbtvm.strategies.intrinsics.walk import END_OF

_END_OF, _TESTS_OF = ir.Op.get(END_OF), ir.Op.get(TESTS_OF)

_AHEAD = 4  # rows whose ranks are prefetched
_LINE = 64  # bytes of a cache line


def fetch_trees(loop: Any) -> Any:
    """Return an annotated loop over rows with prefetches.

    The annotation: walks of an iteration; the distance to the next trees, in units of those that the loop
    walks; leaves of all of these; and values of a leaf.
    """
    calls: list[Any] = []
    loads: list[Any] = []
    inner: list[Any] = [loop.loop_var]
    tvm_ffi.structural_walk(loop.body, (ir.Call, lambda call: calls.append(call)))
    tvm_ffi.structural_walk(loop.body, (ir.TensorLoad, lambda load: loads.append(load)))
    tvm_ffi.structural_walk(loop.body, (tirx.For, lambda nested: inner.append(nested.loop_var)))
    walk = next(call for call in calls if call.op in (_END_OF, _TESTS_OF))
    value = next(load for load in loads if load.source.name.split("_")[0] == "value")
    name, node, row = next(iter(loop.annotations)), walk.args[0], walk.args[2]
    walks, ahead, leaves, width = (int(number) for number in loop.annotations[name])

    def at(load: Any, number: int = 0) -> Any:
        """Return where the entries of the first tree begin, for the row of this number."""
        (index,) = load.indices
        first = tvm_ffi.structural_map(index, (ir.Call, _first_leaf))
        return index_at(first, dict.fromkeys(inner, 0) | {loop.loop_var: number})

    here = loop.loop_var.astype("int64")
    fetched, nodes = [], leaves
    if walk.op == _END_OF:
        step = int(sym.Analyzer().simplify(at(row, 1) - at(row)))
        fetched += _lines(row.source, at(row) + (here + _AHEAD) * step, step)
    else:
        nodes = leaves // 2**LEVELS * record_size(int(walk.args[3].value), str(node.ty.dtype))
    for load, size in ((node, nodes), (value, leaves * width)):
        share = -(-size // int(loop.extent))
        lines = _lines(load.source, at(load) + ahead * size + here * share, share)
        # A walk reads no more than a few lines of its tree.
        fetched += lines if len(lines) <= walks else []
    body = sequence([*fetched, loop.body])
    return tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, body, loop.thread_binding, {})


def _first_leaf(call: Any) -> Any:
    return tirx.const(0, "int32") if call.op == _END_OF else call


def _lines(buffer: Any, start: Any, count: int) -> list[Any]:
    """Return prefetches of the lines of `count` entries from `start` on."""
    step = _LINE // np.dtype(str(buffer.dtype)).itemsize
    return [prefetch(tirx.BufferLoad(buffer, [start + const(k)]), 3) for k in range(0, count, step)]
