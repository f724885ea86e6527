"""CPU schedules of networks, by the roles of axes: rows, outputs, terms of sums, lanes.

Vectors of rows (knob ``axis`` = ``"rows"``)::

    for row tile:
        (columns = the tile transposed)
        for each stage in order:
            sums:    for `output_tile` outputs, `vectors` * `lanes` rows: for terms (by `unroll`): sums += ...
                     if a single stage reads them: that stage of these outputs and rows, from registers
            others:  for column: for `lanes` rows: ...
        scores = the last stage, by rows

If a product is the only reader of a wide input (support vectors' kernels), `block` columns of that input are
computed at a time, and stay in the first-level cache; a few columns (hidden values of a network with few
outputs) stay in registers. Vectors of columns (``axis`` = ``"outputs"``) are for single rows.
"""

from __future__ import annotations

import math
from typing import Any, cast

from hbtvm.schedules.cpu.sharing import row_thread_knobs, threads_are_valid
from hbtvm.schedules.cpu.steps import (
    STORED_BY_ROW,
    decompose,
    is_arm,
    mark,
    row_tiles,
    state_tile,
    transpose_stage,
    vector_lanes,
)
from hbtvm.schedules.network import loops as network_loops
from hbtvm.schedules.network import nearest as network_nearest
from hbtvm.schedules.network.nodes import (
    REGISTER_BLOCKS,
    SUMS,
    chained,
    even_outputs,
    follows_tables,
    fusible,
    in_register_blocks,
    may_expand,
    nearest,
    only_one_hot,
    sums_and_weights,
)
from hbtvm.schedules.network.plan import (
    LONG,
    MAX_SUMS,
    Plan,
    plan,
    read_in_registers,
    stage_of,
    stores_by_row,
)
from hbtvm.schedules.space import Config, Knob, Space
from hbtvm.schedules.workload import NetworkWorkload, Target, Workload

_PADDED = 9 / 8  # rows of a batch's tiles, over its own, from which small tiles pay for all networks
_WEIGHTS = 1 << 16  # bytes that about fit the first-level cache, where each small tile reads them again


def space(workload: Workload, target: Target) -> Space:
    """Return the knobs for a network's workload (`NetworkWorkload`) on a CPU target."""
    network = cast(NetworkWorkload, workload)
    lanes, rows = vector_lanes(target, "float64"), network["rows"]

    def valid(config: Config) -> bool:
        if not threads_are_valid(config):
            return False
        width, vectors, tile, outputs = (
            int(config[name]) for name in ("lanes", "vectors", "row_tile", "output_tile")
        )
        if config["axis"] == "outputs":
            return tile == 1 and outputs == 1 and config["block"] not in REGISTER_BLOCKS
        return tile % (width * vectors) == 0 and vectors * outputs <= MAX_SUMS

    blocks: tuple[int, ...] = (0, 16, 32, 64, 128) if fusible(network["nodes"]) else (0,)
    if in_register_blocks(network["nodes"]):
        blocks += REGISTER_BLOCKS
    return Space(
        (
            Knob("axis", ("rows", "outputs") if 2 * rows > lanes[0] else ("outputs",)),
            Knob("row_tile", row_tiles(rows, lanes)),
            Knob("lanes", lanes),
            Knob("vectors", (1, 2, 4, 8)),
            Knob("output_tile", (1, 2, 4, 8)),
            Knob("block", blocks),
            Knob("unroll", (1, 2, 4, 8)),
            Knob("distances", ("direct", "expanded") if may_expand(network["nodes"]) else ("direct",)),
            *_point_knobs(network),
            *row_thread_knobs(network),
        ),
        valid,
    )


def _point_knobs(network: NetworkWorkload) -> tuple[Knob, ...]:
    """Return the knob for the block size of a search for nearest points, if the network has one."""
    choices = network_nearest.sizes(network["nodes"], nearest(network["nodes"]))
    return (Knob("points", choices),) if choices else ()


def default(workload: Workload, target: Target) -> Config:
    """Return a good single-thread configuration for unmeasured workloads."""
    network = cast(NetworkWorkload, workload)
    config = _default(network, target)
    distances = nearest(network["nodes"])
    if not distances:
        return config
    config["points"] = network_nearest.default_size(network["nodes"], distances)
    if config["points"] and config["axis"] == "rows":
        config["output_tile"] = max(n for n in (1, 2, 4, 8) if n * int(config["vectors"]) <= MAX_SUMS)
    return config


def _default(network: NetworkWorkload, target: Target) -> Config:
    lanes, rows = vector_lanes(target, "float64"), network["rows"]
    fused = bool(fusible(network["nodes"]))
    # Cancellation between close points is far below the precision that an exponential keeps.
    distances = "expanded" if fused and may_expand(network["nodes"]) else "direct"
    tile = max(row_tiles(rows, lanes[-1:]))
    # (Vectors of 256 bits gain nothing from that.)
    if tile < lanes[-1] or (lanes[-1] > 4 and only_one_hot(network["nodes"])):
        return {
            "axis": "outputs", "row_tile": 1, "lanes": lanes[-1], "vectors": 4, "output_tile": 1, "block": 0,
            "unroll": 1, "distances": distances,
        }  # fmt: skip
    tile, vectors, output_tile, unroll = _rows(network, target, min(tile, 32))
    outputs = [int(network["nodes"][at]["width"]) for at in in_register_blocks(network["nodes"])]
    # (A block in registers is cut for as many outputs, and leaves no room for more.)
    small = bool(outputs) and max(outputs) <= 2 and output_tile <= REGISTER_BLOCKS[0]
    block = 16 if fused else REGISTER_BLOCKS[0] if small else 0
    return {
        "axis": "rows",
        "row_tile": tile,
        "lanes": lanes[-1],
        "vectors": vectors,
        "output_tile": output_tile,
        "block": block,
        "unroll": unroll,
        "distances": distances,
    }


def _rows(network: NetworkWorkload, target: Target, most: int) -> tuple[int, int, int, int]:
    """Return a tile's rows, and the vectors, outputs and terms of a step of its sums; `most`: of the rows.

    Large tiles share loads of tables and weights, which matters for wide or chained sums and for weights that
    outgrow the first-level cache. Small tiles keep the values between stages near, and pad a batch less.
    """
    nodes, lanes = network["nodes"], vector_lanes(target, "float64")[-1]
    widest, weights = sums_and_weights(nodes)
    even = min(4, even_outputs(nodes))
    # AVX2 has half as many registers as AVX-512 and Arm.
    many = lanes > 4 or is_arm(target)
    vectors = max(n for n in ((1, 2, 4) if many else (1, 2)) if n * lanes <= most)
    if is_arm(target) or not widest or follows_tables(nodes):
        return most, vectors, even, 2
    if not many:
        return vectors * lanes, vectors, even, 4
    if -(-network["rows"] // most) * most > _PADDED * network["rows"]:
        both = min(2, vectors) if chained(nodes) else 1
        return both * lanes, both, 8, 4
    if widest > MAX_SUMS or weights > _WEIGHTS or chained(nodes):
        return most, vectors, even, 2
    # Two additions start in each cycle, and take four: eight sums at a time hide that.
    vectors = min(vectors, max(1, 8 >> (widest - 1).bit_length()))
    return (lanes, 1, 8, 4) if vectors == 1 else (vectors * lanes, vectors, even, 2)


def apply(sch: Any, workload: Workload, config: Config) -> None:
    """Schedule the expressions in place."""
    network = cast(NetworkWorkload, workload)
    _Scheduler(sch, plan(network, config), int(config["unroll"])).run()


class _Scheduler:
    def __init__(self, sch: Any, plan: Plan, unroll: int) -> None:
        self.sch, self.plan, self.unroll = sch, plan, unroll
        self.blocks_of_terms: dict[int, Any] = {}
        self.readers = read_in_registers(plan)
        self.in_registers: dict[int, Any] = {}
        self.late: list[tuple[Any, Any]] = []

    def run(self) -> None:
        sch = self.sch
        scores = sch.get_sblock("scores")
        tile, row, output = sch.get_loops(scores)
        stored = stores_by_row(self.plan, int(sch.get(output).extent))
        if not stored:
            self._state(scores, 1)
        names = [str(sch.get(block).name_hint) for block in sch.get_child_blocks(sch.get_sblock("root"))]
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
            around = self.in_registers.get(at) if name in (f"s{at}", f"s{at}_numbers") else None
            sch.compute_at(block, around or self.blocks_of_terms.get(inside, tile), True)
            if name == "columns":
                transpose_stage(sch, block, self.plan.lanes)
            elif not network_nearest.schedule(
                sch, self.plan, name, block, self.unroll, self.late
            ) and not network_loops.schedule(sch, self.plan, name, block, rows):
                self._stage(block, name, at)
        for block, loop in self.late:
            decompose(sch, block, loop, self.plan.lanes if self.plan.by_rows else 1)

    def _state(self, block: Any, row_axis: int = 2) -> None:
        """Declare that an sblock reads any column of earlier stages: data-dependent places have no bounds.

        Stages computed a block at a time are an exception: the product reads just that block.
        """
        for region in self.sch.get(block).reads:
            name = region.source.name
            at = stage_of(name)
            if (
                len(region.source.shape) == 3
                and name != "rows"
                and (at < 0 or self.plan.stages[at].inside < 0)
                and at not in self.readers
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
            self._pointwise(block, at)
        elif self.plan.by_rows:
            self._sum_by_rows(block, at)
        else:
            self._sum_by_outputs(block, at)

    def _pointwise(self, block: Any, at: int) -> None:
        sch, plan = self.sch, self.plan
        w, r = sch.get_loops(block)[-2:]
        # Compute long functions for several vectors at once, to hide the latency of their steps.
        long = at >= 0 and plan.stages[at].form.get("function") in LONG
        together = plan.vectors if long else 1
        sums = [stage for stage, reader in self.readers.items() if reader == at]
        if sums:
            around, output = sch.split(w, [None, self._outputs(w, sums[0])])
            rows, register, lane = sch.split(r, [None, plan.vectors // together, plan.lanes * together])
            sch.reorder(around, rows, output, register, lane)
            sch.unroll(output)
            mark(sch, register, lane)
            self.in_registers[sums[0]] = rows
        elif plan.by_rows:
            _, lane = sch.split(r, [None, plan.lanes * together])
            sch.vectorize(lane)
        elif int(sch.get(w).extent) % plan.lanes == 0:
            _, lane = sch.split(w, [None, plan.lanes])
            sch.reorder(r, lane)
            sch.vectorize(lane)

    def _vectors(self, at: int) -> tuple[int, int]:
        """Return the vectors and lanes of sums; a register holds twice as many float32 numbers."""
        plan = self.plan
        if plan.stages[at].form.get("single") and plan.vectors % 2 == 0:
            return plan.vectors // 2, 2 * plan.lanes
        return plan.vectors, plan.lanes

    def _outputs(self, loop: Any, at: int) -> int:
        """Return the outputs of a register tile within a loop over outputs."""
        extent = int(self.sch.get(loop).extent)
        tile = self.plan.stages[at].tile if self._kind(at) in SUMS else 1
        return math.gcd(tile, extent)

    def _kind(self, at: int) -> str:
        return str(self.plan.stages[at].form["kind"])

    def _sum_by_rows(self, block: Any, at: int) -> None:
        sch, plan = self.sch, self.plan
        w, r, k = sch.get_loops(block)[-3:]
        outputs = self._outputs(w, at)
        product = any(stage.inside == at for stage in plan.stages)
        around, output = sch.split(w, [None, outputs])
        vectors, lanes = self._vectors(at)
        rows, register, lane = sch.split(r, [None, vectors, lanes])
        if product:
            # Load and store sums once for all unrolled terms.
            blocks, k, inner = sch.split(k, [None, plan.block // min(8, plan.block), min(8, plan.block)])
            sch.reorder(blocks, around, rows, k, inner, output, register, lane)
            sch.unroll(inner)
            self.blocks_of_terms[at] = blocks
            first = blocks
        else:
            step, inner = sch.split(k, [None, math.gcd(self.unroll, int(sch.get(k).extent))])
            sch.reorder(around, rows, step, inner, output, register, lane)
            sch.unroll(inner)
            first = step
        sch.unroll(output)
        mark(sch, register, lane)
        if at in self.in_registers:
            sch.set_scope(block, 0, "local")
        elif not product:
            # Sums in a separate array stay in registers.
            copy = sch.cache_write(block, 0, "local")
            sch.reverse_compute_at(copy, rows, True)
            # (Unrolled like the sums, or these would go to memory.)
            output, row = sch.get_loops(copy)[-2:]
            sch.unroll(output)
            _, register, lane = sch.split(row, [None, vectors, lanes])
            mark(sch, register, lane)
        self.late.append((block, first))

    def _sum_by_outputs(self, block: Any, at: int) -> None:
        sch, lanes = self.sch, self.plan.lanes
        loops = sch.get_loops(block)
        w, r, k = loops[-3:]
        extent = int(sch.get(w).extent)
        if self._kind(at) not in SUMS or extent % lanes:
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
