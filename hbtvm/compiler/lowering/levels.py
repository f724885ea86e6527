"""Loops over the levels of walks, which end when all walks have reached a leaf.

A tensor expression's reduction has a fixed extent: the deepest tree's levels, but paths differ in length
and the longest is rarely taken. If a schedule annotates its loop with `EARLY_EXIT`, it becomes a while
loop that continues while any walk moved in the last step.

Few rows touch a small part of a large tree, so that each step of a walk waits for memory. If a schedule
annotates the loop with `QUEUE`, all rows of a tile take a step before any takes the next, and each step
prefetches the line that the row's next step reads::

    for level in the first levels: for row in tile: step(row); prefetch(slot[row])
    queue = rows of the tile
    while queue:
        for row in queue: step(row); prefetch(slot[row])
        keep the rows that moved, in order
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import ir, tirx

from hbtvm.schedules.cpu.traversal import EARLY_EXIT, QUEUE
from hbtvm.schedules.statements import const, prefetch, scratch, sequence, serial

_UNROLLED = 4  # rows in straight-line code


def exit_early(loop: Any) -> Any:
    """Return an annotated loop of a lowered function as a while loop that ends when no walk moves."""
    lanes = int(loop.annotations[EARLY_EXIT])
    stored: list[Any] = []
    tvm_ffi.structural_walk(loop.body, (tirx.BufferStore, lambda store: stored.append(store.buffer)))
    # The last buffer of the reduction's state: the distance that each walk moved in its last step.
    moved = stored[-1]
    count = int(moved.shape[0])
    places = range(0, count, lanes)
    distances = [tirx.BufferLoad(moved, [at if lanes == 1 else tirx.Ramp(at, 1, lanes)]) for at in places]
    combined, kind = distances[0], str(moved.dtype)
    for distance in distances[1:]:
        combined = combined | distance
    if lanes > 1:
        combined = tirx.call_llvm_pure_intrin(kind, "llvm.vector.reduce.or", combined)
    return tirx.While(combined != tirx.const(0, kind), loop.body)


def walk_by_queue(loop: Any) -> Any:
    """Return the statement that takes the place of an annotated loop over levels of a lowered function.

    The annotation is the number of levels that all rows walk. The loop's body is a loop over rows, which
    stores the slot and the distance that each row moved.
    """
    loops: list[Any] = []
    stored: list[Any] = []
    calls: list[Any] = []
    tvm_ffi.structural_walk(loop.body, (tirx.For, loops.append))
    tvm_ffi.structural_walk(loop.body, (tirx.BufferStore, lambda store: stored.append(store.buffer)))
    tvm_ffi.structural_walk(loop.body, (ir.Call, calls.append))
    (row,) = (inner for inner in loops if int(inner.extent) > 1)
    lookups = [call for call in calls if call.op.name == "hbtvm.lookup"]
    node = next(call for call in lookups if call.args[0].source.name.split("_")[0] == "node")
    moved, count, zero = stored[-1], int(row.extent), const(0)
    # The index reads the slot from memory: after a step, the next one.
    following = tirx.BufferLoad(node.args[0].source, [node.args[0].indices[0] + node.args[1]])

    def step(number: Any) -> Any:
        bound: list[Any] = []
        tvm_ffi.structural_walk(row.body, (tirx.Bind, lambda bind: bound.append(bind.var)))
        fresh = [(variable, tirx.Var(variable.name, variable.ty)) for variable in bound]

        def chosen(variable: Any) -> Any:
            if variable.same_as(row.loop_var):
                return number.astype(variable.ty.dtype)
            return next((new for old, new in fresh if variable.same_as(old)), variable)

        return tvm_ffi.structural_map(sequence([row.body, prefetch(following, 3)]), (tirx.Var, chosen))

    def together(block: Any) -> Any:
        loop = serial("member", _UNROLLED, lambda member: step(block * const(_UNROLLED) + member))
        return tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.UNROLLED, loop.body)

    queue, kept, live = (scratch(f"{name}_rows", size, "int32") for name, size in
                         (("queued", count), ("kept", 1), ("live", 1)))  # fmt: skip

    def ask(place: Any) -> Any:
        number = tirx.Var("number", "int64")
        walks = tirx.Cast("int32", tirx.BufferLoad(moved, [number]) != tirx.const(0, "int32"))
        return sequence(
            [
                tirx.Bind(number, queue.load(place).astype("int64")),
                step(number),
                queue.store(number.astype("int32"), kept.load(zero).astype("int64")),
                kept.store(kept.load(zero) + walks, zero),
            ]
        )

    blocks = serial("block", count // _UNROLLED, together)
    passes = [
        kept.store(tirx.const(0, "int32"), zero),
        serial("place", live.load(zero).astype("int64"), ask),
        live.store(kept.load(zero), zero),
    ]
    return sequence(
        [
            *(statement for array in (queue, kept, live) for statement in array.allocation()),
            serial("level", int(loop.annotations[QUEUE]), lambda _: blocks),
            serial("row", count, lambda at: queue.store(at.astype("int32"), at)),
            live.store(tirx.const(count, "int32"), zero),
            tirx.While(live.load(zero) > tirx.const(0, "int32"), sequence(passes)),
        ]
    )
