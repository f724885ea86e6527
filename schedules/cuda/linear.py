"""CUDA schedules of linear models::

block for each tile of rows (blockIdx.x) and `output_tile` outputs (blockIdx.y):
    columns[:, :] = ...                          # in shared memory, by all threads (knob ``columns``)
    thread for each x of row_threads:
        for k (by `unroll`): for output: for row of rows_each: numbers[output, row] += term   (registers)
        for c: the same of codes
        scores = numbers + codes
"""

from __future__ import annotations

from typing import Any, cast

from hbtvm.schedules.cpu.linear import divisors
from hbtvm.schedules.cpu.steps import state_tile
from hbtvm.schedules.cuda.space import Needs, aligned, element, fits
from hbtvm.schedules.cuda.steps import scope
from hbtvm.schedules.space import Config, Knob, Space
from hbtvm.schedules.workload import LinearWorkload, Target, Workload

_MAX_SUMS = 16  # most sums in a thread's registers
_PROCESSORS = 128  # approximate number of multiprocessors of a large GPU


def space(workload: Workload, target: Target) -> Space:
    """Return the knobs for a linear model's workload (`LinearWorkload`) on a CUDA target."""
    linear = cast(LinearWorkload, workload)
    tiles = tuple(n for n in (1, 32, 64, 128, 256, 512, 1024) if n < 2 * linear["rows"])

    def valid(config: Config) -> bool:
        tile, threads = int(config["row_tile"]), int(config["row_threads"])
        sums = tile // threads * int(config["output_tile"])
        if tile % threads or sums > _MAX_SUMS:
            return False
        return fits(needs(workload, config), target, {"resident": 1})

    return Space(
        (
            Knob("row_tile", tiles),
            Knob("row_threads", tiles),
            Knob("output_tile", divisors(linear["outputs"], _MAX_SUMS)),
            Knob("columns", ("shared", "global") if linear["numbers"] + linear["codes"] else ("global",)),
            Knob("unroll", divisors(linear["numbers"], 16)),
            Knob("code_unroll", divisors(linear["codes"], 16)),
        ),
        valid,
    )


def needs(workload: Workload, config: Config) -> Needs:
    """Return the resources of a block of threads."""
    linear = cast(LinearWorkload, workload)
    tile, threads = int(config["row_tile"]), int(config["row_threads"])
    shared = 0
    if config["columns"] == "shared":
        shared = aligned(tile * linear["features"] * element(linear["dtype"]))
    return Needs(threads, shared, 32 + 6 * (tile // threads) * int(config["output_tile"]))


def default(workload: Workload, target: Target) -> Config:
    """Return a good configuration for unmeasured workloads."""
    linear = cast(LinearWorkload, workload)
    # A block for each multiprocessor first, then larger blocks.
    threads = max(
        n
        for n in (1, 32, 64, 128)
        if n == 1 or (n < 2 * linear["rows"] and n * _PROCESSORS <= linear["rows"])
    )
    if threads == 1 and linear["rows"] > 16:
        threads = 32
    chosen: Config = {
        "row_tile": threads,
        "row_threads": threads,
        "output_tile": divisors(linear["outputs"], 8)[-1],
        "columns": "shared" if linear["numbers"] + linear["codes"] else "global",
        "unroll": divisors(linear["numbers"], 8)[-1],
        "code_unroll": divisors(linear["codes"], 8)[-1],
    }
    # Rows that are too wide for shared memory are read from global memory.
    return chosen if space(workload, target).contains(chosen) else {**chosen, "columns": "global"}


def apply(sch: Any, workload: Workload, config: Config) -> None:
    """Schedule the expressions in place (blocks ``numbers``, ``codes``, ``scores``, perhaps ``columns``)."""
    linear = cast(LinearWorkload, workload)
    threads, tile = int(config["row_threads"]), int(config["output_tile"])
    shared = needs(workload, config).shared
    scores = sch.get_sblock("scores")
    i, g, o, r = sch.get_loops(scores)
    block, output = sch.split(o, [None, tile])
    # Neighbouring rows: TVM proves that no threads share them, and keeps their sums in registers.
    x, each = sch.split(r, [threads, None])
    sch.reorder(g, i, block, x, output, each)
    sch.bind(i, "blockIdx.x")
    sch.bind(block, "blockIdx.y")
    _bind(sch, x, threads)
    sch.unroll(output)
    sch.unroll(each)
    placed = []
    sums = [("numbers", "unroll", linear["numbers"]), ("codes", "code_unroll", linear["codes"])]
    for name, unroll, count in sums:
        if not count:
            continue
        stage = sch.get_sblock(name)
        sch.compute_at(stage, x, True)
        output, row, step = sch.get_loops(stage)[-3:]
        step, inner = sch.split(step, [None, int(config[unroll])])
        sch.reorder(step, inner, output, row)
        for loop in (inner, output, row):
            sch.unroll(loop)
        sch.set_scope(stage, 0, "local")
        placed.append((stage, step))
    if config["columns"] == "shared":
        for stage, _ in placed:
            state_tile(sch, stage, "columns", 2)
        columns = sch.get_sblock("columns")
        sch.compute_at(columns, block, True)
        # Neighbouring threads read neighbouring columns of a row.
        column, row = sch.get_loops(columns)[-2:]
        sch.reorder(row, column)
        _, lane = sch.split(sch.fuse(row, column), [None, threads])
        _bind(sch, lane, threads)
        sch.set_scope(columns, 0, scope(shared))
    for stage, step in placed:
        init = sch.decompose_reduction(stage, step)
        for loop in sch.get_loops(init)[-2:]:
            sch.unroll(loop)


def _bind(sch: Any, loop: Any, threads: int) -> None:
    """Bind a loop to a block's threads; a single iteration stays a loop."""
    if threads > 1:
        sch.bind(loop, "threadIdx.x")
