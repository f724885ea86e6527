"""Schedules of searches for the k nearest of many points (see `hbtvm.strategies.network.nearest`).

Vectors of rows::

    for block of points: for `vectors` * `lanes` rows:
        for `output_tile` points: sums over features, in float32; least = min(least, sums)
    for vector of rows: the k nearest among the candidate blocks

For a single row, vectors run over blocks, so that the points are read once and in order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hbtvm.schedules.cpu.steps import mark, state_read
from hbtvm.schedules.network.plan import Plan

NEAREST_ROWS = "hbtvm.nearest_rows"
"""Annotation of the loop over the rows that are searched together."""

_MOST_BLOCKS = 2048  # most blocks for which a tile's minima stay in the second-level cache
_FEWEST = 64  # fewest points for which blocks pay


@dataclass(frozen=True)
class Shape:
    """Sizes of one search."""

    # `points`, `features`: numbers of the model's points and features
    points: int
    features: int
    # `size`, `blocks`: points of a block, and number of blocks, empty blocks included
    size: int
    blocks: int
    lanes: int  # blocks of a vector; 0 if vectors run over rows


def shape_of(plan: Plan, at: int) -> Shape:
    """Return the sizes of distance number `at`."""
    points, features = (int(size) for size in plan.stages[at].form["tables"]["points"])
    blocks, lanes = -(-points // plan.points), 0
    if not plan.by_rows:
        lanes = 2 * plan.lanes
        blocks = -(-blocks // lanes) * lanes
    return Shape(points, features, plan.points, blocks, lanes)


def sizes(nodes: Sequence[Mapping[str, Any]], distances: Mapping[int, int]) -> tuple[int, ...]:
    """Return the choices of the knob ``points``: points of a block; 0 computes all distances exactly."""
    if not distances:
        return ()
    points = max(int(nodes[at]["tables"]["points"][0]) for at in distances.values())
    return (0, *(size for size in (16, 32, 64, 128, 256, 512, 1024) if size * _MOST_BLOCKS * 4 >= points))


def default_size(nodes: Sequence[Mapping[str, Any]], searches: Mapping[int, int]) -> int:
    """Return a good choice for unmeasured workloads."""
    points = max(int(nodes[at]["tables"]["points"][0]) for at in searches.values())
    if points < _FEWEST:
        return 0
    size = next(
        choice
        for choice in (32, 64, 128, 256, 512, 1024)
        if choice * _MOST_BLOCKS >= points or choice == 1024
    )
    most = max(int(nodes[at]["k"]) for at in searches)
    return size if most * 4 * size <= points else 16


def rows_of(plan: Plan) -> int:
    """Return the rows of a float32 vector."""
    return min(2 * plan.lanes, plan.lanes * plan.vectors) if plan.by_rows else 1


def schedule(sch: Any, plan: Plan, name: str, block: Any, unroll: int, late: list[tuple[Any, Any]]) -> bool:
    """Schedule a stage inside the loop over tiles if it belongs to a search; return whether it does.

    `late`: receives reductions to decompose, with the loops in front of which they begin.
    """
    if name.endswith("_least"):
        _least(sch, plan, name, block, unroll, late)
    elif name.endswith("_dots"):
        pass
    elif name.lstrip("s").isdigit() and plan.stages[int(name[1:])].form["kind"] == "top_k":
        filtered = int(name[1:]) in plan.nearest
        if filtered:
            _every_least(sch, block, f"{name}_least")
        width, row = sch.get_loops(block)[-2:]
        around, row = sch.split(row, [None, rows_of(plan) if filtered or not plan.by_rows else plan.lanes])
        sch.reorder(around, row, width)
        sch.annotate(row, NEAREST_ROWS, 1)
    else:
        return False
    return True


def _every_least(sch: Any, block: Any, buffer: str) -> None:
    """Declare that a row may read any block's minimum."""
    shape = next(extent.source for extent in sch.get(block).reads if extent.source.name == buffer).shape

    def ranges(tile: Any, width: Any, row: Any) -> list[tuple[Any, Any]]:
        this_row, blocks = (row, row + 1), (0, shape[1])
        return [(tile, tile + 1), blocks, this_row, *((0, extent) for extent in shape[3:])]

    state_read(sch, block, buffer, ranges)


def _least(sch: Any, plan: Plan, name: str, block: Any, unroll: int, late: list[tuple[Any, Any]]) -> None:
    dots = sch.get_sblock(name.replace("_least", "_dots"))
    tile = plan.output_tile if plan.by_rows else plan.vectors
    if plan.by_rows:
        lanes = rows_of(plan)
        b, r, j = sch.get_loops(block)[-3:]
        rows, register, lane = sch.split(r, [None, plan.lanes * plan.vectors // lanes, lanes])
        points, point = sch.split(j, [None, math.gcd(tile, int(sch.get(j).extent))])
        sch.reorder(b, rows, points, point, register, lane)
        copied, begin = rows, points
    else:
        g, r, lane, j = sch.get_loops(block)[-4:]
        points, point = sch.split(j, [None, math.gcd(tile, int(sch.get(j).extent))])
        sch.reorder(g, r, points, point, lane)
        register = None
        copied, begin = r, points
    sch.unroll(point)
    if register is not None:
        sch.unroll(register)
    sch.vectorize(lane)
    copy = sch.cache_write(block, 0, "local")
    sch.reverse_compute_at(copy, copied, True)
    if plan.by_rows:
        _, register, lane = sch.split(
            sch.get_loops(copy)[-1], [None, plan.lanes * plan.vectors // lanes, lanes]
        )
        mark(sch, register, lane)
    else:
        sch.vectorize(sch.get_loops(copy)[-1])
    sch.compute_at(dots, points, True)
    sch.set_scope(dots, 0, "local")
    p, n, f = sch.get_loops(dots)[-3:]
    step, inner = sch.split(f, [None, math.gcd(unroll, int(sch.get(f).extent))])
    if plan.by_rows:
        register, lane = sch.split(n, [None, rows_of(plan)])
        sch.reorder(step, inner, p, register, lane)
        sch.unroll(register)
    else:
        lane = n
        sch.reorder(step, inner, p, lane)
    sch.unroll(inner)
    sch.unroll(p)
    sch.vectorize(lane)
    late += [(dots, step), (block, begin)]
