"""CUDA schedules of networks: a thread computes whole rows, with stages in registers or local memory::

    block for each tile of rows (blockIdx.x):
        columns[:, :] = ...                          # in shared memory, by all threads (knob ``columns``)
        thread for each x of row_threads:
            for each stage in order:
                sums:    for `output_tile` outputs, for row of rows_each: for terms (by `unroll`): sums += ...
                others:  for column: for row of rows_each: ...
            scores = the last stage

All threads of a warp read the same entries of most tables at a time, in one load from the cache. If a product
is the only reader of a wide input (support vectors' kernels), or a search finds the smallest of many values
(neighbours), `block` columns of these are computed at a time, and stay in registers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

from hbtvm.schedules.cpu.steps import state_tile
from hbtvm.schedules.cuda.network_shared import FEW_ROWS, VALUES_AT_ONCE, share_columns
from hbtvm.schedules.cuda.space import Needs, aligned, element, fits
from hbtvm.schedules.cuda.steps import scope
from hbtvm.schedules.network import loops as network_loops
from hbtvm.schedules.network.nodes import SUMS, even_outputs, fusible, in_one_pass, may_expand
from hbtvm.schedules.network.plan import Plan, plan, stage_of
from hbtvm.schedules.space import Config, Knob, Space
from hbtvm.schedules.workload import NetworkWorkload, Target, Workload

_MAX_SUMS = 16  # most sums in a thread's registers
_PROCESSORS = 128  # approximate number of multiprocessors of a large GPU

MAX_NUMBERS = 1 << 12
"""Most numbers in a thread's local memory. Drivers reserve it for every resident thread: of 8 bytes each,
8.25 GiB for the 2048 threads of each of 132 multiprocessors."""

_SEVERAL_ROWS_NUMBERS = 1 << 11
"""Most numbers of a thread that has several rows."""

MULTIPLY_ADD = "hbtvm.multiply_add"
"""Attribute of a function that allows fused multiply-adds, since no tree's leaf depends on the rounding."""

_COLUMN_THREADS = (1, 8, 32, 128, 256)

_UNROLLED = 32
"""Most iterations of inner loops to unroll, which keeps the arrays that they index in registers."""


def planned(workload: Workload, config: Config) -> Plan:
    """Return the stages of a configuration; threads take the place of a CPU's lanes."""
    chosen: Config = {**config, "axis": "rows", "lanes": 1, "vectors": 1}
    return plan(cast(NetworkWorkload, workload), chosen, one_pass=True)


def space(workload: Workload, target: Target) -> Space:
    """Return the knobs for a network's workload (`NetworkWorkload`) on a CUDA target."""
    network = cast(NetworkWorkload, workload)
    tiles = tuple(n for n in (1, 32, 64, 128, 256, 512, 1024) if n < 2 * network["rows"])
    fused = bool(fusible(network["nodes"], one_pass=True))
    # A loop over a row's values runs in one thread.
    shares = network["rows"] <= FEW_ROWS and not network_loops.loops(network["nodes"])

    def valid(config: Config) -> bool:
        tile, threads = int(config["row_tile"]), int(config["row_threads"])
        sums = tile // threads * int(config["output_tile"])
        if tile % threads or sums > _MAX_SUMS:
            return False
        if config["column_threads"] != 1:
            # Threads compute all columns at a time, one column each.
            if config["output_tile"] != 1 or config["block"] or config["distances"] == "expanded":
                return False
        elif kept_numbers(workload, config) > (MAX_NUMBERS if tile == threads else _SEVERAL_ROWS_NUMBERS):
            return False
        return fits(needs(workload, config), target, {"resident": 1})

    return Space(
        (
            Knob("row_tile", tiles),
            Knob("row_threads", tuple(n for n in tiles if n <= 512)),
            # Several threads for each row: few rows do not fill a GPU.
            Knob("column_threads", _COLUMN_THREADS if shares else (1,)),
            Knob("columns", ("shared", "global")),
            Knob("output_tile", (1, 2, 4, 8, 16)),
            Knob("block", (0, 4, 8, 16, 32) if fused else (0,)),
            Knob("unroll", (1, 2, 4, 8)),
            Knob("distances", ("direct", "expanded") if may_expand(network["nodes"]) else ("direct",)),
        ),
        valid,
    )


def needs(workload: Workload, config: Config) -> Needs:
    """Return the resources of a block of threads."""
    network = cast(NetworkWorkload, workload)
    tile, threads = int(config["row_tile"]), int(config["row_threads"])
    shared = 0
    if config["columns"] == "shared":
        shared = aligned(tile * network["features"] * element(network["dtype"]))
    columns = int(config["column_threads"])
    if columns > 1:
        shared += shared_bytes(workload, config)
    return Needs(threads * columns, shared, 64 + 6 * (tile // threads) * int(config["output_tile"]))


def fewest_kept(workload: Workload) -> int:
    """Return the least numbers that a thread keeps, with one row."""
    fused = bool(fusible(cast(NetworkWorkload, workload)["nodes"], one_pass=True))
    least: Config = {
        "row_tile": 1, "row_threads": 1, "output_tile": 1, "block": 4 if fused else 0, "distances": "direct"
    }  # fmt: skip
    return kept_numbers(workload, least)


def kept_numbers(workload: Workload, config: Config) -> int:
    """Return the most numbers that a thread keeps, in registers and local memory."""
    stages = planned(workload, config)
    kept = 0
    for stage in stages.stages:
        if stage.kept:
            kept += min(stage.room, stages.block) if stage.inside >= 0 else stage.room
        if in_one_pass(stage.form):
            kept += int(stage.form["width"])
    return kept * (int(config["row_tile"]) // int(config["row_threads"]))


def shared_bytes(workload: Workload, config: Config) -> int:
    """Return an upper bound of the bytes of shared memory for a tile's stages."""
    rooms = [(stage.room, _arrays(stage.form)) for stage in planned(workload, config).stages if stage.kept]
    return sum(arrays * aligned(8 * int(config["row_tile"]) * room) for room, arrays in rooms)


def _arrays(form: Mapping[str, Any]) -> int:
    """Return the number of arrays of a node's width that its computation takes, the result included."""
    match form["kind"]:
        case "linear_sum" | "top_k":
            return 2
        case "elementwise":
            return 2 if form.get("function") == "normal_quantile" else 1
        case "reduce":
            return 2 if str(form.get("function")).startswith("arg") else 1
        case "distance":
            return 3 if form.get("metric") == "nan_euclidean" else 1
        case "bucketize" | "interpolate":
            edges = form["tables"]["edges" if form["kind"] == "bucketize" else "at"]
            return 2 + int(edges[1]).bit_length()
    return 1


def default(workload: Workload, target: Target) -> Config:
    """Return a good configuration for unmeasured workloads."""
    network, known = cast(NetworkWorkload, workload), space(workload, target)
    shared = _shared_default(network)
    # Less than a warp pays only for very few rows.
    if int(shared["column_threads"]) >= (32 if network["rows"] > 16 else 8) and known.contains(shared):
        return shared
    # A warp for each multiprocessor first, then larger blocks.
    threads = max(
        n
        for n in (1, 32, 64, 128)
        if n == 1 or (n < 2 * network["rows"] and n * _PROCESSORS <= network["rows"])
    )
    if threads == 1 and network["rows"] > 16:
        threads = 32
    fused = bool(fusible(network["nodes"], one_pass=True))
    tile = min(8, even_outputs(network["nodes"]))
    chosen: Config = {
        "row_tile": threads,
        "row_threads": threads,
        "column_threads": 1,
        "columns": "shared",
        "output_tile": tile,
        "block": 8 if fused else 0,
        "unroll": 2,
        "distances": "expanded" if fused and may_expand(network["nodes"]) else "direct",
    }
    # Rows too wide for shared memory are read from global memory; if little room is left, nothing is padded.
    for columns, output_tile in (("shared", tile), ("global", tile), ("global", 1)):
        fitted: Config = {**chosen, "columns": columns, "output_tile": output_tile}
        if known.contains(fitted):
            break
    return fitted


def _shared_default(network: NetworkWorkload) -> Config:
    """Return a configuration for few rows: a warp for each row, or a few warps for very few rows."""
    most = 256 if network["rows"] <= 16 else 32
    return {
        "row_tile": 1,
        "row_threads": 1,
        "column_threads": max(
            n for n in _COLUMN_THREADS if n == 1 or n < min(2 * network["widest"], most + 1)
        ),
        "columns": "shared",
        "output_tile": 1,
        "block": 0,
        "unroll": 4,
        "distances": "direct",
    }


def apply(sch: Any, workload: Workload, config: Config) -> None:
    """Schedule the expressions in place."""
    shared = needs(workload, config).shared
    if config["column_threads"] != 1:
        share_columns(sch, config, shared)
        return
    _Scheduler(sch, planned(workload, config), config, shared).run()


class _Scheduler:
    def __init__(self, sch: Any, plan: Plan, config: Config, shared: int) -> None:
        self.sch, self.plan, self.config, self.shared = sch, plan, config, shared
        self.threads, self.unroll = int(config["row_threads"]), int(config["unroll"])
        self.blocks_of_terms: dict[int, Any] = {}
        self.late: list[tuple[Any, Any]] = []

    def run(self) -> None:
        sch = self.sch
        names = [str(sch.get(child).name_hint) for child in sch.get_child_blocks(sch.get_sblock("root"))]
        scores = sch.get_sblock("scores")
        tile, group, output, row = sch.get_loops(scores)
        self._state(scores, 3)
        x, each = sch.split(row, [self.threads, None])
        sch.reorder(group, tile, x, output, each)
        sch.bind(tile, "blockIdx.x")
        self._bind(x)
        sch.unroll(each)
        for name in reversed(names):
            if name in ("scores", "columns"):
                continue
            block, at = sch.get_sblock(name), stage_of(name)
            # Squares of a row's own columns are the same for all blocks of terms.
            inside = self.plan.stages[at].inside if at >= 0 and not name.endswith("_square") else -1
            self._state(block)
            sch.compute_at(block, self.blocks_of_terms.get(inside, x), True)
            if any(axis.iter_type == 2 for axis in sch.get(block).iter_vars):
                self._sum(block, at)
            elif not network_loops.schedule(sch, self.plan, name, block, 1):
                self._unrolled(sch.get_loops(block)[-2:])
            for n in range(len(sch.get(block).writes)):
                sch.set_scope(block, n, "local")
        if "columns" in names:
            self._columns(tile)
        for block, loop in self.late:
            variables = [sch.get(axis_loop).loop_var for axis_loop in sch.get_loops(block)]
            around = variables.index(sch.get(loop).loop_var)
            init = sch.decompose_reduction(block, loop)
            self._unrolled(sch.get_loops(init)[around:])

    def _state(self, block: Any, row_axis: int = 2) -> None:
        """Declare that an sblock reads any column of earlier stages; see `hbtvm.schedules.cpu.network`."""
        for region in self.sch.get(block).reads:
            name = region.source.name
            at = stage_of(name)
            if (
                len(region.source.shape) == 3
                and name != "rows"
                and (at < 0 or self.plan.stages[at].inside < 0)
            ):
                state_tile(self.sch, block, name, row_axis)

    def _columns(self, tile: Any) -> None:
        """Copy a tile's rows to shared memory; neighbouring threads read neighbouring columns of a row."""
        sch, columns = self.sch, self.sch.get_sblock("columns")
        sch.compute_at(columns, tile, True)
        column, row = sch.get_loops(columns)[-2:]
        sch.reorder(row, column)
        _, lane = sch.split(sch.fuse(row, column), [None, self.threads])
        self._bind(lane)
        sch.set_scope(columns, 0, scope(self.shared))

    def _unrolled(self, loops: Any, values: int = 1) -> None:
        """Unroll short inner loops; `values`: results of each iteration."""
        iterations = -(-values // VALUES_AT_ONCE)
        for loop in reversed(loops):
            iterations *= int(self.sch.get(loop).extent)
            if iterations > _UNROLLED:
                return
            self.sch.unroll(loop)

    def _sum(self, block: Any, at: int) -> None:
        sch = self.sch
        w, row, k = sch.get_loops(block)[-3:]
        kind = str(self.plan.stages[at].form["kind"])
        outputs = math.gcd(self.plan.output_tile if kind in SUMS else 1, int(sch.get(w).extent))
        product = any(stage.inside == at for stage in self.plan.stages)
        around, output = sch.split(w, [None, outputs])
        if product:
            blocks, k = sch.split(k, [None, self.plan.block])
            sch.reorder(blocks, around, k, output, row)
            self.blocks_of_terms[at] = blocks
            self._unrolled((around, k, output, row), len(sch.get(block).writes))
            self.late.append((block, blocks))
            return
        step, inner = sch.split(k, [None, math.gcd(self.unroll, int(sch.get(k).extent))])
        sch.reorder(around, step, inner, output, row)
        self.late.append((block, step))
        if len(sch.get(block).writes) > 1:
            self._unrolled((inner, output, row), len(sch.get(block).writes))
            return
        for loop in (inner, output, row):
            sch.unroll(loop)
        # Sums in a separate array stay in registers.
        copy = sch.cache_write(block, 0, "local")
        sch.reverse_compute_at(copy, around, True)
        self._unrolled(sch.get_loops(copy)[-2:])
        sch.set_scope(copy, 0, "local")

    def _bind(self, loop: Any) -> None:
        """Bind a loop to a block's threads; a single iteration stays a loop."""
        if self.threads > 1:
            self.sch.bind(loop, "threadIdx.x")
