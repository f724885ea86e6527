"""Fuse a program's last two axes, such as rows and columns of an image, so that vectors run over both."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tvm import s_tir, tirx
from tvm.tirx import IndexMap

from hbtvm.programs.computation import ENTRY, Main, Operand, main_of


def fused(module: Any, main: Main) -> tuple[Any, Main] | None:
    """Return a program whose main block has one axis for the two last dimensions that it writes.

    The block writes a buffer in which these are one dimension, and another block copies it to the output.
    Returns None if an operand is read in another order along these axes, or the output is read again.
    """
    if len(main.written) < 2 or None in main.written or len(main.written) != len(main.spatial):
        return None
    known = {axis.number: axis for axis in main.axes}
    axes = [known[number] for number in main.written if number is not None]
    size = axes[-1].extent
    kept = [axis.number for axis in main.axes if axis.reduces and axis.extent > 1]

    def dims(*indices: Any) -> list[Any]:
        return [*indices[:-2], indices[-2] * size + indices[-1]]

    def order(*indices: Any) -> list[Any]:
        return [*dims(*(indices[axis.number] for axis in axes)), *(indices[number] for number in kept)]

    schedule = s_tir.Schedule(module)
    block = schedule.get_sblock(main.block, func_name=ENTRY)
    try:
        copy = schedule.cache_write(block, 0, "global")
        schedule.transform_layout(block, ("write", 0), dims)
        schedule.transform_block_layout(block, _map(order, len(main.axes)))
        schedule.transform_block_layout(copy, _map(dims, len(axes)))
    except (s_tir.ScheduleError, RuntimeError, ValueError):
        return None
    done = main_of(schedule.mod)
    vector = len(axes) - 2
    reads = schedule.get(block).reads
    variable = schedule.get(block).iter_vars[vector].var
    operands = [_merged(operand, reads[operand.number], variable, vector, size) for operand in done.operands]
    if done.block != main.block or len(operands) != len(main.operands) or None in operands:
        return None
    return schedule.mod, replace(done, operands=tuple(o for o in operands if o is not None))


def _map(function: Callable[..., list[Any]], axes: int) -> Any:
    return IndexMap.from_func(function, ndim=axes, index_dtype="int32")


def widens(main: Main, native: int) -> bool:
    """Whether vectors over the two last axes are longer than over the last."""
    extents = {axis.number: axis.extent for axis in main.axes}
    last = [extents[number] for number in main.written[-2:] if number is not None]
    return len(last) == 2 and math.gcd(last[0] * last[1], native) > math.gcd(last[1], native)


def _merged(operand: Operand, region: Any, variable: Any, vector: int, size: int) -> Operand | None:
    """Describe an operand whose two dimensions are read in order as one; None if it is read otherwise."""
    places = [place for place, dims in enumerate(operand.dims) if vector in dims]
    if not places:
        return operand
    if len(places) != 2 or places[1] != places[0] + 1 or operand.shape[places[1]] != size:
        return None
    high, low = (region.region[place].min for place in places)
    if not (_divides(high, tirx.FloorDiv, variable, size) and _divides(low, tirx.FloorMod, variable, size)):
        return None
    at, last = places[0], places[1] == len(operand.dims) - 1
    return replace(
        operand,
        shape=(*operand.shape[:at], operand.shape[at] * size, *operand.shape[at + 2 :]),
        dims=(*operand.dims[:at], frozenset({vector}), *operand.dims[at + 2 :]),
        pure=(*operand.pure[:at], vector, *operand.pure[at + 2 :]),
        strides=tuple(int(n == vector and last) for n in range(len(operand.strides))),
        fixed=True,
    )


def _divides(index: Any, kind: Any, variable: Any, size: int) -> bool:
    return isinstance(index, kind) and index.a.same_as(variable) and int(index.b) == size
