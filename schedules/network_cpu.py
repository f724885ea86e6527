"""CPU schedules of networks, by the roles of axes: rows, outputs, terms of sums, lanes.

Vectors of rows (knob ``axis`` = ``"rows"``)::

    for row tile:
        (columns = the tile transposed)
        for each stage in order:
            sums:    for `output_tile` outputs, `vectors` * `lanes` rows: for terms (by `unroll`): sums += ...
            others:  for column: for `lanes` rows: ...
        scores = the last stage, by rows

Where a product reads something wide that is computed for it alone (support vectors' kernels), `block`
columns of that are computed at a time, and stay in the first-level cache. Vectors of columns (``axis`` =
``"outputs"``) are for single rows.
"""

from __future__ import annotations

import math
from typing import Any, cast

from hbtvm.schedules import network_loops, network_nearest
from hbtvm.schedules.cpu import (
    STORED_BY_ROW,
    decompose,
    mark,
    row_tiles,
    state_tile,
    threads_are_valid,
    transpose_stage,
    vector_lanes,
)
from hbtvm.schedules.network_plan import Plan, fusible, may_expand, nearest, plan, stage_of, stores_by_row
from hbtvm.schedules.space import Config, Knob, Space
from hbtvm.schedules.workload import NetworkWorkload, Target, Workload

_MAX_SUMS = 24
"""Vectors of sums that are in the making at once; more would not stay in registers."""

_SUMS = ("contract", "distance", "linear_sum")


def space(workload: Workload, target: Target) -> Space:
    """Knobs for a network's workload (`NetworkWorkload`) on a CPU target."""
    own = cast(NetworkWorkload, workload)
    lanes, rows = vector_lanes(target, "float64"), own["rows"]

    def valid(config: Config) -> bool:
        if not threads_are_valid(config):
            return False
        width, vectors, tile, outputs = (
            int(config[name]) for name in ("lanes", "vectors", "row_tile", "output_tile")
        )
        if config["axis"] == "outputs":
            return tile == 1 and outputs == 1
        return tile % (width * vectors) == 0 and vectors * outputs <= _MAX_SUMS

    blocks = (0, 16, 32, 64, 128) if fusible(own["nodes"]) else (0,)
    return Space(
        (
            Knob("axis", ("rows", "outputs") if 2 * rows > lanes[0] else ("outputs",)),
            Knob("row_tile", row_tiles(rows, lanes)),
            Knob("lanes", lanes),
            Knob("vectors", (1, 2, 4, 8)),
            Knob("output_tile", (1, 2, 4, 8)),
            Knob("block", blocks),
            Knob("unroll", (1, 2, 4, 8)),
            Knob("distances", ("direct", "expanded") if may_expand(own["nodes"]) else ("direct",)),
            *_point_knobs(own),
            *_thread_knobs(own),
        ),
        valid,
    )


def _point_knobs(own: NetworkWorkload) -> tuple[Knob, ...]:
    """Points of the blocks in which the nearest are searched for, where a network does that."""
    choices = network_nearest.sizes(own["nodes"], nearest(own["nodes"]))
    return (Knob("points", choices),) if choices else ()


def _thread_knobs(own: NetworkWorkload) -> tuple[Knob, ...]:
    """As `hbtvm.schedules.cpu.thread_knobs`; there is nothing but rows to share."""
    if own["threads"] == 1 or own["rows"] == 1:
        return ()
    return Knob("parallel", ("none", "rows")), Knob("grain", (1, 4, 16))


def default(workload: Workload, target: Target) -> Config:
    """A good configuration of one thread where nothing was measured."""
    own = cast(NetworkWorkload, workload)
    config = _default(own, target)
    found = nearest(own["nodes"])
    if not found:
        return config
    config["points"] = network_nearest.default_size(own["nodes"], found)
    if config["points"] and config["axis"] == "rows":
        config["output_tile"] = max(n for n in (1, 2, 4, 8) if n * int(config["vectors"]) <= _MAX_SUMS)
    return config


def _default(own: NetworkWorkload, target: Target) -> Config:
    lanes, rows = vector_lanes(target, "float64"), own["rows"]
    fused = bool(fusible(own["nodes"]))
    # What cancels between points close together is far below what an exponential of them tells.
    distances = "expanded" if fused and may_expand(own["nodes"]) else "direct"
    tile = max(row_tiles(rows, lanes[-1:]))
    if tile < lanes[-1]:
        return {
            "axis": "outputs", "row_tile": 1, "lanes": lanes[-1], "vectors": 4, "output_tile": 1, "block": 0,
            "unroll": 1, "distances": distances,
        }  # fmt: skip
    tile = min(tile, 32)
    vectors = max(n for n in (1, 2, 4) if n * lanes[-1] <= tile)
    return {
        "axis": "rows",
        "row_tile": tile,
        "lanes": lanes[-1],
        "vectors": vectors,
        "output_tile": min(4, _even(own)),
        "block": 32 if fused else 0,
        "unroll": 2,
        "distances": distances,
    }


def _even(own: NetworkWorkload) -> int:
    """Outputs of which a tile pads little: the largest power of two up to the widest sum."""
    widest = max([1, *(int(node["width"]) for node in own["nodes"] if node["kind"] in _SUMS)])
    return 1 << (widest.bit_length() - 1)


def apply(sch: Any, workload: Workload, config: Config) -> None:
    """Schedule the expressions in place."""
    own = cast(NetworkWorkload, workload)
    _Scheduler(sch, plan(own, config), int(config["unroll"])).run()


class _Scheduler:
    def __init__(self, sch: Any, made: Plan, unroll: int) -> None:
        self.sch, self.plan, self.unroll = sch, made, unroll
        self.blocks_of_terms: dict[int, Any] = {}
        self.late: list[tuple[Any, Any]] = []

    def run(self) -> None:
        sch = self.sch
        scores = sch.get_sblock("scores")
        tile, row, output = sch.get_loops(scores)
        stored = stores_by_row(self.plan, int(sch.get(output).extent))
        if not stored:
            self._state(scores, 1)
        names = [str(sch.get(one).name_hint) for one in sch.get_child_blocks(sch.get_sblock("root"))]
        if stored:
            sch.annotate(row, STORED_BY_ROW, self.plan.lanes)
        elif self.plan.by_rows:
            sch.reorder(output, row)
            _, lane = sch.split(row, [None, self.plan.lanes])
            sch.vectorize(lane)
        rows = self.plan.lanes if self.plan.by_rows else 1
        for name in reversed(names):
            if name == "scores":
                continue
            block = sch.get_sblock(name)
            at = stage_of(name)
            # Squares of a row's own columns are the same for all blocks of terms.
            inside = self.plan.stages[at].inside if at >= 0 and not name.endswith("_square") else -1
            if name.endswith("_dots"):
                continue
            self._state(block)
            sch.compute_at(block, self.blocks_of_terms.get(inside, tile), True)
            if name == "columns":
                transpose_stage(sch, block, self.plan.lanes)
            elif not network_nearest.schedule(
                sch, self.plan, name, block, self.unroll, self.late
            ) and not network_loops.schedule(sch, self.plan, name, block, rows):
                self._stage(block, name, at)
        for block, loop in self.late:
            decompose(sch, block, loop, self.plan.lanes if self.plan.by_rows else 1)

    def _state(self, block: Any, row_axis: int = 2) -> None:
        """State that a block reads any column of the stages before it: places in data have no bounds.

        Not so of what is computed a block at a time, of which the product reads just that.
        """
        for region in self.sch.get(block).reads:
            name = region.source.name
            at = stage_of(name)
            if (
                len(region.source.shape) == 3
                and name != "rows"
                and (at < 0 or self.plan.stages[at].inside < 0)
            ):
                state_tile(self.sch, block, name, row_axis)

    def _stage(self, block: Any, name: str, at: int) -> None:
        sch = self.sch
        reduces = any(axis.iter_type == 2 for axis in sch.get(block).iter_vars)
        parts = name.endswith("_parts")
        if parts:
            n, k = sch.get_loops(block)[-2:]
            sch.reorder(k, n)
            sch.vectorize(n)
            self.late.append((block, k))
        elif not reduces:
            self._pointwise(block)
        elif self.plan.by_rows:
            self._sum_by_rows(block, at)
        else:
            self._sum_by_outputs(block, at)

    def _pointwise(self, block: Any) -> None:
        sch, lanes = self.sch, self.plan.lanes
        w, r = sch.get_loops(block)[-2:]
        if self.plan.by_rows:
            _, lane = sch.split(r, [None, lanes])
            sch.vectorize(lane)
        elif int(sch.get(w).extent) % lanes == 0:
            _, lane = sch.split(w, [None, lanes])
            sch.reorder(r, lane)
            sch.vectorize(lane)

    def _kind(self, at: int) -> str:
        return str(self.plan.stages[at].form["kind"])

    def _sum_by_rows(self, block: Any, at: int) -> None:
        sch, plan = self.sch, self.plan
        w, r, k = sch.get_loops(block)[-3:]
        outputs = plan.output_tile if self._kind(at) in _SUMS else 1
        outputs = math.gcd(outputs, int(sch.get(w).extent))
        product = any(stage.inside == at for stage in plan.stages)
        around, output = sch.split(w, [None, outputs])
        rows, register, lane = sch.split(r, [None, plan.vectors, plan.lanes])
        if product:
            blocks, k = sch.split(k, [None, plan.block])
            sch.reorder(blocks, around, rows, k, output, register, lane)
            self.blocks_of_terms[at] = blocks
            first = blocks
        else:
            step, inner = sch.split(k, [None, math.gcd(self.unroll, int(sch.get(k).extent))])
            sch.reorder(around, rows, step, inner, output, register, lane)
            sch.unroll(inner)
            first = step
        sch.unroll(output)
        mark(sch, register, lane)
        if not product:
            # Sums in an array of their own stay in registers.
            copy = sch.cache_write(block, 0, "local")
            sch.reverse_compute_at(copy, rows, True)
            _, register, lane = sch.split(sch.get_loops(copy)[-1], [None, plan.vectors, plan.lanes])
            mark(sch, register, lane)
        self.late.append((block, first))

    def _sum_by_outputs(self, block: Any, at: int) -> None:
        sch, lanes = self.sch, self.plan.lanes
        loops = sch.get_loops(block)
        w, r, k = loops[-3:]
        extent = int(sch.get(w).extent)
        if self._kind(at) not in _SUMS or extent % lanes:
            self.late.append((block, k))
            return
        vectors = math.gcd(self.plan.vectors, extent // lanes)
        around, register, lane = sch.split(w, [None, vectors, lanes])
        step, inner = sch.split(k, [None, math.gcd(self.unroll, int(sch.get(k).extent))])
        sch.reorder(r, around, step, inner, register, lane)
        sch.unroll(inner)
        mark(sch, register, lane)
        copy = sch.cache_write(block, 0, "local")
        sch.reverse_compute_at(copy, around, True)
        w = sch.get_loops(copy)[-2]
        _, lane = sch.split(w, [None, lanes])
        sch.reorder(sch.get_loops(copy)[-1], lane)
        sch.vectorize(lane)
        self.late.append((block, step))
