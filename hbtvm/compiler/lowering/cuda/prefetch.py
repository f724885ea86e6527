"""Prefetch tables of the next tile of trees to shared memory on CUDA, while threads walk the current tile.

A schedule places copies of a tile's tables in the loop over tiles (`hbtvm.schedules.cuda.steps.stage_table`):
each thread loads some, stores them, and waits for the others. If the schedule annotates the loop
(`hbtvm.schedules.cuda.steps.PREFETCHED`), tables are double-buffered, and copies are asynchronous::

    copy tile 0 to half 0 of the buffers
    for tile t, two of them unrolled:
        wait for this thread's copies, then for all threads   # which then have left tile t - 1, too
        copy tile t + 1 to half (t + 1) % 2, if there is one
        walk the trees in half t % 2

So one barrier per tile suffices, and copies take no registers (CUDA C++ Programming Guide, "Asynchronous Data
Copies"). GPUs before compute capability 8.0 copy synchronously.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import tvm_ffi
from tvm import ir, tirx

from hbtvm.compiler.lowering.rewrites import held
from hbtvm.schedules.cuda.steps import PREFETCHED

NAME = "__pipeline_memcpy_async"

SOURCE = """#ifdef __CUDACC__
#include <cuda_pipeline.h>
#endif
"""
"""CUDA's header of the copying functions."""

_MOST = 16  # most bytes of a copy


def prefetch(loop: Any) -> Any:
    """Return the replacement of an annotated loop over tiles of a lowered function."""
    statements = list(loop.body.seq)
    shared = {statement.buffer: statement for statement in statements if _is_shared(statement)}
    copies = [statement for statement in statements if _fills(statement, shared)]
    rest = [statement for statement in statements if not _is_shared(statement) and statement not in copies]
    doubled = {buffer: _twice(buffer) for buffer in shared}
    kind = str(loop.loop_var.ty.dtype)
    zero, one_more, two = (tirx.const(n, kind) for n in range(3))
    pair, half = tirx.Var("pair", kind), tirx.Var("half", kind)
    tile = pair * two + half

    def copied(tile: Any, half: Any) -> list[Any]:
        return [_asynchronous(copy, loop.loop_var, tile, half, doubled) for copy in copies]

    following = tirx.IfThenElse(
        tile + one_more < loop.extent, _sequence(copied(tile + one_more, one_more - half)), None
    )
    walks = [_put(_from_half(statement, half, doubled), loop.loop_var, tile) for statement in rest]
    step = [_call("__pipeline_commit"), _call("__pipeline_wait_prior", tirx.const(0, "int32")), _barrier()]
    body = tirx.IfThenElse(tile < loop.extent, tirx.SeqStmt([*step, following, *walks]), None)
    # A half's start is then a constant offset within addresses.
    both = tirx.For(half, zero, two, tirx.ForKind.UNROLLED, body)
    pairs = tirx.For(pair, zero, (loop.extent + one_more) // two, tirx.ForKind.SERIAL, both)
    return tirx.SeqStmt(
        [
            *(
                tirx.AllocBuffer(doubled[buffer], dict(statement.annotations))
                for buffer, statement in shared.items()
            ),
            _barrier(),  # in blocks that go on to other rows, some threads may still walk the last tile
            *copied(zero, zero),
            held(int(loop.annotations[PREFETCHED]), pairs),
        ]
    )


def _is_shared(statement: Any) -> bool:
    """Return whether a statement allocates a tensor in shared memory."""
    return isinstance(statement, tirx.AllocBuffer) and statement.buffer.scope().startswith("shared")


def _fills(statement: Any, buffers: Any) -> bool:
    """Return whether a statement stores to these buffers only."""
    stored: list[Any] = []
    tvm_ffi.structural_walk(statement, (tirx.BufferStore, lambda store: stored.append(store.buffer)))
    return bool(stored) and all(buffer in buffers for buffer in stored)


def _twice(buffer: Any) -> Any:
    """Return a buffer for two tiles."""
    (count,) = buffer.shape
    shape = (tirx.const(2 * int(count), str(count.ty.dtype)),)
    return tirx.decl_buffer(shape, buffer.dtype, buffer.name, scope=buffer.scope())


def _start(buffer: Any, half: Any) -> Any:
    """Return the offset of a half of a doubled buffer."""
    (count,) = buffer.shape
    return half.astype(str(count.ty.dtype)) * count


def _put(statement: Any, variable: Any, value: Any) -> Any:
    """Return a statement with a value substituted for a variable."""
    return tvm_ffi.structural_map(statement, (tirx.Var, lambda var: value if var.same_as(variable) else var))


def _from_half(statement: Any, half: Any, doubled: Any) -> Any:
    """Return a statement that reads tables in a half of the doubled buffers."""

    def load(expression: Any) -> Any:
        buffer = doubled.get(expression.source)
        if buffer is None:
            return expression
        return tirx.BufferLoad(buffer, [expression.indices[0] + _start(expression.source, half)])

    return tvm_ffi.structural_map(statement, (ir.TensorLoad, load))


def _asynchronous(statement: Any, variable: Any, tile: Any, half: Any, doubled: Any) -> Any:
    """Return a statement that copies a tile's part of a table asynchronously to a half."""

    def vector(loop: Any) -> Any:
        if loop.kind != tirx.ForKind.VECTORIZED:
            return loop
        body = _put(loop.body, loop.loop_var, loop.min)
        return tvm_ffi.structural_map(body, (tirx.BufferStore, lambda store: copy(store, int(loop.extent))))

    def copy(store: Any, count: int = 1) -> Any:
        size = count * np.dtype(str(store.buffer.dtype)).itemsize
        step = min(size, _MOST)
        to, source = store.indices[0] + _start(store.buffer, half), store.value.indices[0]
        return _sequence(
            [
                _call(
                    NAME,
                    tirx.address_of(tirx.BufferLoad(doubled[store.buffer], [to + at])),
                    tirx.address_of(tirx.BufferLoad(store.value.source, [source + at])),
                    tirx.const(step, "int32"),
                )
                for at in range(0, count, count * step // size)
            ]
        )

    copies = tvm_ffi.structural_map(_put(statement, variable, tile), (tirx.For, vector))
    return tvm_ffi.structural_map(copies, (tirx.BufferStore, copy))


def _call(name: str, *arguments: Any) -> Any:
    return tirx.Evaluate(tirx.call_extern("int32", name, *arguments))


def _barrier() -> Any:
    return tirx.Evaluate(tirx.call_intrin("int32", "tirx.tvm_storage_sync", "shared"))


def _sequence(statements: Sequence[Any]) -> Any:
    return statements[0] if len(statements) == 1 else tirx.SeqStmt(list(statements))
