"""Early exit of walks: end their loop when all have reached a leaf, not after the deepest tree's levels.

A tensor expression's reduction has a fixed extent. If a schedule annotates its loop (`EARLY_EXIT`), the loop
becomes a while loop that continues while any walk moved in the last step: trees' paths differ in length, and
the longest is rarely taken.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx

from hbtvm.schedules.cpu.traversal import EARLY_EXIT


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
    combined = distances[0]
    for distance in distances[1:]:
        combined = combined | distance
    if lanes > 1:
        combined = tirx.call_llvm_pure_intrin("int32", "llvm.vector.reduce.or", combined)
    return tirx.While(combined != tirx.const(0, "int32"), loop.body)
