"""Folds that end when all of their walks have arrived, instead of after the deepest tree's levels.

A tensor expression's reduction runs over a fixed extent. Where a schedule annotates its loop
(`ENDS`), the loop becomes one that goes on while any walk of the last
step moved: trees' paths differ in length, and the longest is rarely taken.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx

from hbtvm.schedules.traversal_cpu import ENDS


def end_early(loop: Any) -> Any:
    """Make an annotated loop of a lowered function one that goes on while anything moves."""
    lanes = int(loop.annotations[ENDS])
    stored: list[Any] = []
    tvm_ffi.structural_walk(loop.body, (tirx.BufferStore, lambda store: stored.append(store.buffer)))
    # The fold's last state: how far each walk moved in its last step.
    moved = stored[-1]
    count = int(moved.shape[0])
    places = range(0, count, lanes)
    ways = [tirx.BufferLoad(moved, [at if lanes == 1 else tirx.Ramp(at, 1, lanes)]) for at in places]
    still = ways[0]
    for way in ways[1:]:
        still = still | way
    if lanes > 1:
        still = tirx.call_llvm_pure_intrin("int32", "llvm.vector.reduce.or", still)
    return tirx.While(still != tirx.const(0, "int32"), loop.body)
